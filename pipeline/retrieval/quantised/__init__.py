"""Quantised embeddings: float16, int8 and sign bits, searched directly and rescored exactly.

Read `codes` for the rows and their calibration, `two_stage` for the search. The file format is in
`pipeline.retrieval.embedding_file`.
"""
