"""Fine-tuning: training a fitted head together with the network of its image features.

Read `finetune` (the job, part of `pipeline train`) first; then `image_rows`, image files as
training rows, `augmentation`, `network`, and `finetuning_task`, a head's task with a network in
front.
"""

WEIGHTS_FILE = "backbone.safetensors"
"""File of the tuned weights of the image network, next to the head."""
