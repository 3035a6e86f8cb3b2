"""Ground truth of a dataset's images beyond their captions, for datasets with a known generator.

Other datasets with a ground truth are registered here.
"""

from pipeline.datasets.image_truth import CaptionTruth, ImageWords, ProbeTruth
from pipeline.datasets.manifest import Manifest
from pipeline.studies.scenes.drawn_truth import drawn_truth


def caption_truth_of(manifest: Manifest) -> CaptionTruth | None:
    """Return the reference for checking captions of a dataset; None if it has none."""
    return drawn_truth(manifest)


def image_words_of(manifest: Manifest) -> ImageWords | None:
    """Return the words that are true of a dataset's images; None if only captions are known."""
    return drawn_truth(manifest)


def probe_truth_of(manifest: Manifest) -> ProbeTruth | None:
    """Return the reference for probing embeddings of a dataset; None if only captions are known."""
    return drawn_truth(manifest)
