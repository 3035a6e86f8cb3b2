"""Projection heads: fit on a split, embed images and captions, save and load."""
