"""Generated captions of images.

Read `captions` first (the protocol of a captioner and its result). `captioner` generates candidates
with a trained language model (`generation`) and keeps the best; `baselines` need no language model.
`describe` has the jobs over images and a dataset, `captions_file` their file format.
"""
