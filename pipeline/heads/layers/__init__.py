"""Layers that several heads share."""
