"""Regions of images: boxes, proposal methods, and region features.

Read `boxes` first (boxes and their overlap), then `proposals` (the boxes of every image of a
dataset, in shards of their own) and `propose`, their job. `features` is the job of
`pipeline extract --regions`; `photo_source` and `proposal_source` compute rows of feature sets.
`pipeline.datasets.regions` reads phrases with true boxes. No module here knows HDF5.
"""

from pipeline.store.errors import PipelineError

METHODS = ("edge-boxes", "selective-search", "bing", "grid", "boxes", "ground-truth")
"""Names of proposal methods."""


class RegionError(PipelineError):
    """Boxes, proposals or localizations are invalid, inconsistent or not available."""
