"""Embeddings in fewer bytes: float16, int8 and sign bits, searched as such and rescored exactly.

Read `codes` for the rows and their calibration, `two_stage` for the search. The file is
`pipeline.retrieval.embedding_file`'s; nothing here reads or writes one.
"""
