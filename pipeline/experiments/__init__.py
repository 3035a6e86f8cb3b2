"""Experiments from dataset to recall table: file locations, and the steps that are still missing.

`layout` has the folders under `data/`, which no other module knows; `pipeline.store.current`
decides what is up to date. Presets are in `pipeline.heads.presets`; steps run other packages' jobs.
"""
