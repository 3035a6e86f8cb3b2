"""Sentence encoders: captions in, one row each out."""
