"""Scenes drawn and captioned by the project itself: a dataset that needs no download.

A scene is sampled (`sample`, in terms of `world`), captioned (`grammar`, with `noun_phrases` and
`words`) and painted (`painter`, with `shapes` and `backgrounds`); `draw_scenes` combines them.
`parse` parses captions, `truth` compares them with their scene, and `drawn_truth` exposes both to
other packages. `moving/` has short clips. Only `pipeline.experiments` and the commands import this
package.
"""
