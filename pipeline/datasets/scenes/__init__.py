"""Scenes that the project draws and describes itself, so that a fresh machine has a dataset.

A scene is sampled (`sample`, in the terms of `world`), described (`grammar`, out of `phrases`
and `words`) and painted (`painter`, with `shapes` and `backgrounds`); `dataset` joins them.
"""
