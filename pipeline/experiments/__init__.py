"""Experiments from dataset to recall table: file locations, and the steps that are still missing.

`layout` has the folders under `data/`, which no other module knows, and `records` the rule that
decides what is up to date. Presets are in `pipeline.heads.presets`; each step is a job of its room.
"""
