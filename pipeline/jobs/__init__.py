"""Making feature sets: one driver for every family of features.

Read `feature_source` first: what a family provides, its rows and how some of them are computed.
`make_features` is the driver: it locks the output, finds changed, failed and new rows, resumes, has
the missing rows computed in this process or on workers (`worker`), and publishes. `options` are
the options that all families share, `origins` what rows are made from and how a change is found,
`ordered` the look-ahead of threads. What a row is and how it is computed is not known here.
"""
