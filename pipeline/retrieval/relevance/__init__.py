"""Judgments of which items are relevant to a query, and the figures that they allow.

`relevance_file` reads them, `figures` computes the figures of one file, and
`evaluate_relevance` is what `pipeline evaluate --relevance` adds to a table.
"""
