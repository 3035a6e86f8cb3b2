"""Phrase localization: where in an image is what a phrase names (Wang et al. 2016, section 3.3).

Read `localized` first (what is known of each image, phrase and query, and its file), then
`measures` (recall, average precision). `fit` trains heads on regions and phrases, `mining` finds
hard negatives, `localize` and `evaluate` are the jobs of the commands. Boxes and proposals are
`pipeline.regions`', heads and losses `pipeline.heads`'; no path convention lives here.
"""

from pipeline.errors import PipelineError


class LocalizationError(PipelineError):
    """Regions, phrases or a localization file are not what they should be."""
