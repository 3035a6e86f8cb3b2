"""A two-dimensional map of image embeddings: for the pages of `pipeline report` and `serve`.

Read `make_map` first: it draws images, places them in a plane (`plane`), groups them by k-means,
names the groups by their typical words (`typical_words`) and finds each image's nearest ones.
`map_values` makes of it what the template `map.html` of `pipeline.pages` shows.
"""
