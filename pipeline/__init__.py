"""Offline features and embeddings for captioned images, with ids beside every row."""

__version__ = "0.1.0"
