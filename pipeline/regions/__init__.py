"""Regions of photos: their boxes, who proposes them, and the features of what they show.

Read `boxes` first (what a box is, and the overlap of two), then `proposals` (the boxes of every
image of a dataset, in shards of their own) and `propose`, which makes them. `features` is the job
of `pipeline extract --regions`; `photo_source` and `proposal_source` are rows of feature sets.
Phrases with true boxes are read by `pipeline.datasets.regions`; nothing here knows HDF5.
"""
