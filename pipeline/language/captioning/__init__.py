"""Captions of images that have none.

Read `captions` first (what describes images, and what it returns). `captioner` has a trained
language model write candidates by `generation` and keeps the best; `baselines` need no language
model. `describe_split` is the job over a dataset, `captions_file` its result.
"""
