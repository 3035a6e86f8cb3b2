"""Projection heads: fitted on pairs of image and caption features, they embed both in one space.

Read `base` (what every head offers), `head_types` (the heads by name) and `presets` (the published
systems as data) first; `fit` and `embed` are the jobs of `pipeline train` and `pipeline embed`. A
head's mathematics is in `architectures`, what several share in `layers`, `losses`, `inputs` and
`training`.
No path convention and no reading of params.yaml lives here.
"""

from pipeline.errors import PipelineError


class HeadError(PipelineError):
    """A head cannot take these inputs or settings, or its files are not what they should be."""
