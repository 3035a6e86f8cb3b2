"""Networks and weights that images and captions share.

Read `checkpoints` (files), `state_dicts` (weights in them), `random_weights` (weights from a seed)
and `open_clip_models` (models with a tower for each side). No module here knows images, captions or
shards.
"""

from pipeline.store.errors import PipelineError


# Here, since recipes and codebooks raise it too, and importing this module does not import torch.
class WeightsError(PipelineError):
    """Weights or a codebook are missing, cannot be read, or do not fit; there is no fallback."""
