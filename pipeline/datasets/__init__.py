"""Captioned images or clips with splits, each read from its source into one `Manifest`.

Read `manifest` first (the dataset as every other room sees it), then a source of `readers/`, all
over `source`. `splits` says which split trains, validates and tests; `image_truth` is what a
dataset may know beyond its captions. Nothing here opens an image's pixels.
"""
