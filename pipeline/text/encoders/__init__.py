"""Sentence encoders: captions to float32 rows of fixed length.

One module per kind, listed in `KINDS` of `registry`. `base` has the protocol and the base class;
`sentence_transformer` is a small example. Encoders receive fitted parts; fitting and storage are
elsewhere.
"""
