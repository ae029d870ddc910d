"""A report in each of its forms: terminal, JSON, Markdown."""
