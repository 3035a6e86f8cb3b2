"""Phrase localization: where in an image is what a phrase names (Wang et al. 2016, section 3.3).

Read `localized` first (what is known of each image, phrase and query, and its file), then
`measures` (recall, average precision). `sources` opens the data, `train_localizer` trains heads
on regions and phrases, `mining` finds hard negatives, `localize` embeds the `queries` of a split,
and `evaluate_localization` measures them. Boxes and proposals are `pipeline.regions`', heads,
losses and the training job `pipeline.heads`'; no path convention lives here.
"""

from pipeline.errors import PipelineError


class LocalizationError(PipelineError):
    """Regions, phrases or a localization file are not what they should be."""
