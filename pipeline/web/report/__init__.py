"""Report: one table over all experiments of a dataset, and static HTML pages.

Read `write` first, the job of `pipeline report`. `results` reads the outputs of each experiment,
`retrievals`, `head_inspection` and `rankings` analyse them, `figures` and `charts` draw them, and
`sections` and `pages` arrange the pages. `published` has the numbers printed in the papers. Ranks
and Recall@K are computed in `pipeline.retrieval`.
"""
