"""Networks and weights that images and captions share.

Read `state_dicts` (weight files), `random_weights` (weights from a seed), `open_clip_models`
(models with a tower for each side) and `tensor_file` (files of fitted arrays). No module here knows
images, captions or shards.
"""
