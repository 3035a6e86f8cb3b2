"""Scenes that the project draws and describes itself, so that a fresh machine has a dataset.

A scene is sampled (`sample`, in the terms of `world`), described (`grammar`, out of `noun_phrases`
and `words`) and painted (`painter`, with `shapes` and `backgrounds`); `draw_scenes` joins them.
`parse` reads captions back, `truth` compares them with their scene, and `drawn_truth` is what other
rooms see of both. `moving/` has short clips. Only `pipeline.experiments` and the commands import
this room.
"""
