"""Experiments from dataset to recall table: where their files lie, and what is still missing.

Read `layout` for the one place that knows the folders under `data/`. What an experiment is made
of stands in `pipeline.heads.presets`; how a step is done, in the job of its room.
"""
