"""Fine-tuning: training a fitted head together with the network of its image features.

Read `finetune` (the job, part of `pipeline train`) first; then `pictures`, image files as training
rows, `augmentation`, `network`, and `finetuning_task`, a head's task with a network in front. The
training loop is that of `pipeline.heads.training.trainer`.
"""

from pipeline.store.errors import PipelineError

WEIGHTS_FILE = "backbone.safetensors"
"""File of the tuned weights of the image network, next to the head."""


class FinetuningError(PipelineError):
    """A head or network does not support fine-tuning, or image files have changed."""
