"""Networks that images and captions share, and weights: files read, compared, drawn from a seed.

Read `state_dicts` for what a file of weights may be, `random_weights` for what a seed means,
`open_clip_models` for models that have a tower for either side, and `tensor_file` for files of
arrays that are fitted here. No pictures, no captions and no shards: the rooms of images, clips and
text use this one.
"""
