"""Networks that images and captions share, and weights: files read, compared, drawn from a seed.

Read `state_dicts` for what a file of weights may be, `random_weights` for what a seed means, and
`open_clip` for models that have a tower for either side. No pictures, no captions and no shards:
the rooms of images and of text use this one.
"""
