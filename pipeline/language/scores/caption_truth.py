"""Correctness of captions about their images, for datasets with a known truth."""

from collections.abc import Mapping
from statistics import fmean

from pipeline.datasets.image_truth import CaptionTruth


def truth_columns(truth: CaptionTruth | None) -> dict[str, str]:
    """Return the columns of `score_truth` with headings; empty without a truth."""
    if truth is None:
        return {}
    return {
        "parsed": "parsed",
        "true": "true",
        **{f"true_{facet}": facet for facet in truth.facets},
        **{f"says_{facet}": f"says {facet}" for facet in truth.facets},
    }


def score_truth(captions: Mapping[str, str], truth: CaptionTruth) -> dict[str, float | int]:
    """Compare captions with the known content of their images.

    Parameters
    ----------
    captions : mapping of str to str. Caption by image id, at least one.
    truth : CaptionTruth. Truth of the dataset.

    Returns
    -------
    dict
        In per cent: `parsed`, the captions that can be parsed, and `true`, those that are entirely
        correct, both of all captions; for each facet `true_<facet>`, those correct about it, of the
        parsed captions that mention it (without any, the column is missing), and `says_<facet>`,
        those that mention it, of all parsed ones.
    """
    judged = [truth.judge(image, text) for image, text in captions.items()]
    parsed = [right for right in judged if right is not None]
    row: dict[str, float | int] = {
        "parsed": 100 * len(parsed) / len(captions),
        "true": 100 * sum(all(right.values()) for right in parsed) / len(captions),
    }
    for facet in truth.facets:
        if right_in := [right[facet] for right in parsed if facet in right]:
            row[f"true_{facet}"] = 100 * fmean(right_in)
    for facet in truth.facets:
        mentions = sum(facet in right for right in parsed)
        row[f"says_{facet}"] = 100 * mentions / len(parsed) if parsed else 0.0
    return row
