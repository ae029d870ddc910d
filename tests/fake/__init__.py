"""An analysis of three simple rules, for tests of what surrounds the analysis."""
