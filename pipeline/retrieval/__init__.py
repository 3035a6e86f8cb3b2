"""Retrieval in the joint space: embedding files, similarities, ranks by id, Recall@K and search.

Read `embeddings` for the file, `ranking` for ranks and the tie rule, and `measures` for the columns
of the tables; `evaluate` is the job of `pipeline evaluate`. `search` finds the nearest rows,
`approximate` those of millions. Only `torch_scores` and `ranking.on_device` need torch.
"""

from pipeline.store.errors import PipelineError


class EmbeddingsError(PipelineError):
    """Embeddings, their file or a recall table are invalid, or do not support a request."""
