"""The report: one table over all experiments, and pages that open in any browser.

Read `write` for the job, `results` for what is read of an experiment, `sections` for what a page
shows. `retrievals`, `head_inspection` and `rankings` ask what the results say, `charts` and
`figures` draw it, `published` has the papers' numbers. Ranks and Recall@K are computed in
`pipeline.retrieval`, not here.
"""
