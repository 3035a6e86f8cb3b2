"""Relevance judgments, and the figures based on them.

`relevance_file` reads them, `figures` computes the figures of one file, and `evaluate_relevance`
has what `pipeline evaluate --relevance` adds to a table.
"""
