"""Sentence encoders: captions in, one float32 row of fixed length each out.

One family a module; `base` has the protocol that all of them keep. Encoders are given what they
need, fitted: how that is fitted and where it lies on the disk is no concern of theirs.
"""
