"""What is known of a dataset's images beyond their captions, by who made the dataset.

Another kind of dataset with a ground truth is recognised here.
"""

from pipeline.datasets.image_truth import CaptionTruth, ImageWords, ProbeTruth
from pipeline.datasets.manifest import Manifest
from pipeline.scenes.drawn_truth import drawn_truth


def caption_truth_of(manifest: Manifest) -> CaptionTruth | None:
    """Return what captions of a dataset can be checked against; None if there is nothing."""
    return drawn_truth(manifest)


def image_words_of(manifest: Manifest) -> ImageWords | None:
    """Return the words that are true of a dataset's images; None if only captions have them."""
    return drawn_truth(manifest)


def probe_truth_of(manifest: Manifest) -> ProbeTruth | None:
    """Return what embeddings of a dataset can be probed for; None if only captions tell."""
    return drawn_truth(manifest)
