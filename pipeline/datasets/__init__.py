"""Captioned images or clips with splits: sources and drawn scenes, each read into one `Manifest`.

Read `manifest` first (the dataset as every other room sees it), then `folder` or another source,
all over `source`. `splits` says which split trains, validates and tests. Nothing here opens a
picture's pixels but `scenes`, which draws them.
"""
