"""Clip features: frames at stated times through image networks and 3-D networks.

Read `clip_file` and `frames` first (from a file to images with times), then `recipes`,
`clip_batches` (the loop), `clip_source` (clips as rows of a feature set) and `extract_clips` (the
job). Audio is in `pipeline.clips.sound`. No module here knows HDF5.
"""
