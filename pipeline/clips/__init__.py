"""Clip features: image networks and 3-D networks on frames at stated times.

Read `clip_file` and `frames` first (from a file to images with times), then `recipes`,
`clip_batches` (the loop), `clip_source` (clips as rows of a feature set) and `extract_clips` (the
job). Audio is in `pipeline.clips.sound`. No module here knows HDF5.
"""
