"""Captions to feature rows: tokens, word vectors, sentence encoders."""
