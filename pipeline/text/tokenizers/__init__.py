"""Captions to words."""
