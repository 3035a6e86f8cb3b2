"""Relevance judgments, and what `pipeline evaluate --relevance` adds to a table."""
