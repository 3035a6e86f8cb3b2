"""Sentence encoders: captions to float32 rows of fixed length.

One module per family; `base` has their protocol. Encoders receive fitted parts; fitting and storage
are elsewhere.
"""
