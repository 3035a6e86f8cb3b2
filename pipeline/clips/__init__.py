"""Features of clips: frames at stated times through image networks and 3-D networks, and sound.

Read `sound` and `mfcc` first (from a file to windows of coefficients), then `sound_recipes`,
`sound_words` (the codebook and its bags) and `sound_features` (the job). Nothing here knows HDF5;
shards are built by `pipeline.shards.build`.
"""
