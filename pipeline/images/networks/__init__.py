"""Networks and weights that images and captions share.

Read `state_dicts` (weight files), `random_weights` (weights from a seed) and `open_clip_models`
(models with a tower for each side). No module here knows images, captions or shards.
"""

from pipeline.store.errors import PipelineError


class WeightsError(PipelineError):
    """Weights or a codebook are not available, cannot be read, or do not fit; there is no fallback.

    Defined here, where importing it does not import torch.
    """
