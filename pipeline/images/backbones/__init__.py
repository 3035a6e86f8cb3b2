"""Image backbones: the registry, construction and weight formats.

Read `backbone` (the definition of one) and `known_backbones` (all by name) first; each other module
covers the networks of one library or format.
"""
