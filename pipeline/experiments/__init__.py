"""Experiments from dataset to recall table: where their files lie, and what is still missing.

Read `layout` for the one place that knows the folders under `data/`, and `records` for the one
rule of what is up to date. What an experiment is made of is in `pipeline.heads.presets`; how a
step is done, in the job of its room.
"""
