"""The heads: one module for each family of published systems.

A module defines the settings, the layers and `HEAD`; it is listed in `pipeline.heads.head_types`.
Read `ridge` for a closed-form head and `two_branch` for a trained network first; `rate` of a task
is a function of (epoch, scores). Published values are in `pipeline.heads.presets`; shared layers
and losses are in `layers` and `losses`.
"""
