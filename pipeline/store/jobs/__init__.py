"""Jobs that compute feature sets: one driver for every family of features.

Read `feature_source` first: the interface of a family. `make_features` is the driver: it locks the
output, finds changed, failed and new rows, resumes, computes the missing rows in this process or on
workers (`worker`), and publishes. `options` are the options that all families share, `origins` the
sources of rows and change detection, `ordered` the thread prefetch. This package does not depend on
what a row is.
"""
