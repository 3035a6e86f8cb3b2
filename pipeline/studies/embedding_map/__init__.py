"""A two-dimensional map of image embeddings: for the pages of `pipeline report` and `serve`.

Read `make_map` first: it samples images, projects them to a plane (`plane`), clusters them by
k-means, labels the clusters with typical words (`typical_words`) and finds each image's nearest
neighbours. `map_values` prepares the template `map.html` of `pipeline.web.pages`.
"""
