"""Fine-tuning: a trained head and the network of its image features learn on, together.

Read `finetune` (the job, a part of `pipeline train`) first; then `pictures`, image files as the
rows of a training, `augmentation`, `network`, and `task`, what a head's task becomes with a network
in front of it. The loop is `pipeline.heads.training.trainer`'s; no path convention lives here.
"""

from pipeline.errors import PipelineError

WEIGHTS_FILE = "backbone.safetensors"
"""The tuned weights of the image network, beside the head that learnt with it."""


class FinetuningError(PipelineError):
    """A head or a network cannot be fine-tuned, or its pictures are not what they were."""
