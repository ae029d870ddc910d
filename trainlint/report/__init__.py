"""Findings as text for people and programs: one format per file, each a function from results to a string."""
