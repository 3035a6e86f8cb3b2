"""Relevance judgments, and the metrics that `pipeline evaluate --relevance` adds to a table."""
