"""The networks of images: which exist, how each is built, and how its weights are read.

Read `backbone` (what is known of one) and `known_backbones` (all by name) first; each other module
has the networks of one library or format.
"""
