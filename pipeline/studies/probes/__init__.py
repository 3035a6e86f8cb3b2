"""What embeddings encode beyond recall: presence, counts, relations, and wrong captions.

`probe` runs everything on a searcher; facts come from `pipeline.datasets.image_truth` or captions.
"""
