"""The heads, a module for each family of published systems.

A module has the settings of its head, its layers, and `HEAD`, by which `pipeline.heads.head_types`
finds it. Read `ridge` for a closed form and `vse` for a network first. Published values stand in
`pipeline.heads.presets`; layers and losses that two heads share, in `layers` and `losses`.
"""
