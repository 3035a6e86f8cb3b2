"""Principal components of more rows than memory holds.

Read `components` first: one resumable pass sums the `covariance`, whose largest `eigenvectors` are
the components. The encoder that applies them is `pipeline.text.encoders.pca`.
"""
