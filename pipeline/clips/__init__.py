"""Features of clips: frames at stated times through image networks and 3-D networks.

Read `clip_file` and `frames` first (from a file to images with their times), then `recipes`,
`clip_batches` (the loop), `clip_source` (clips as rows of a feature set) and `extract_clips` (the
job). Sound has a package of its own, `pipeline.sound`. Nothing here knows HDF5.
"""
