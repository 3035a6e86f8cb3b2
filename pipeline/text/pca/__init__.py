"""Out-of-core principal component analysis.

Read `components` first: one resumable pass sums the `covariance`, whose largest `eigenvectors` are
the components. `pipeline.text.encoders.pca` applies them.
"""
