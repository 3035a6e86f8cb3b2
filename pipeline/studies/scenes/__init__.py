"""Scenes drawn and captioned by the project itself: a dataset that needs no download.

A scene (`world`) is sampled, captioned (`grammar`) and painted; `draw_scenes` combines them.
`parse` inverts the grammar, `truth` compares captions with scenes. `moving` has short clips.
"""
