"""The heads: one module for each family of published systems.

A module defines the settings, the layers and `HEAD`, which `pipeline.heads.head_types` looks up.
Read `ridge` for a closed-form head and `vse` for a trained network first. Published values are in
`pipeline.heads.presets`; shared layers and losses are in `layers` and `losses`.
"""
