"""Report: one table over all experiments of a dataset, and static HTML pages.

`write` is the entry. `results` reads the outputs of each experiment, `retrievals` and
`head_inspection` analyse them, `figures` and `charts` draw them, and `pages` renders.
"""
