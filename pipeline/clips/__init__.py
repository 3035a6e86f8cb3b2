"""Features of clips: frames at stated times through image networks and 3-D networks, and sound.

Of frames read `clip_file` and `frames` first (from a file to pictures with their times), then
`recipes`, `rows` (the loop) and `extract` (the job). Of sound read `sound` and `mfcc` (from a file
to windows of coefficients), then `sound_recipes`, `sound_words` (the codebook and its bags) and
`sound_features` (the job). Nothing here knows HDF5; shards are built by `pipeline.shards.resume`.
"""
