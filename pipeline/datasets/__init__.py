"""Captioned images or clips with splits: sources, each read into one `Manifest`.

Read `manifest` first (the dataset as every other room sees it), then `folder` or another source,
all over `source`. `splits` says which split trains, validates and tests; `image_truth` is what a
dataset may know beyond its captions. Nothing here opens an image's pixels.
"""
