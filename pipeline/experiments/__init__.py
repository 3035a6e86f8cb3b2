"""Experiments from dataset to recall table: file locations, and which steps are still missing.

Read `layout` for the folders under `data/`, which no other module knows, and `records` for the rule
that decides what is up to date. Presets of experiments are in `pipeline.heads.presets`; each step
is a job of its own package.
"""
