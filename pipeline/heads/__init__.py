"""Projection heads: models, fitted on image-caption pairs, that embed both sides in one space.

Read `base` (the protocol of a head), `head_types` (the registry) and `presets` (published systems
as data) first. `fit` and `embed` are the jobs of `pipeline train` and `pipeline embed`.
`architectures` has one module per head; `layers`, `losses`, `inputs` and `training` are shared.
"""

from pipeline.store.errors import PipelineError


class HeadError(PipelineError):
    """A head does not support these inputs or settings, or its files are damaged."""
