"""The report: one table over all experiments, and pages that open in any browser.

Read `write` for the job, `results` for what is read of an experiment, `sections` and `pages` for
what is shown. `retrievals`, `head_inspection` and `rankings` analyse the results, `figures`
and `charts` draw it, `published` has the papers' numbers. Ranks and Recall@K are computed in
`pipeline.retrieval`, not here.
"""
