"""How many captions are right about their images, for datasets that know."""

from collections.abc import Mapping
from statistics import fmean

from pipeline.datasets.image_truth import CaptionTruth


def truth_columns(truth: CaptionTruth | None) -> dict[str, str]:
    """Return the columns of `score_truth` with their headings; none without a truth."""
    if truth is None:
        return {}
    return {
        "parsed": "parsed",
        "true": "true",
        **{f"true_{facet}": facet for facet in truth.facets},
        **{f"says_{facet}": f"says {facet}" for facet in truth.facets},
    }


def score_truth(captions: Mapping[str, str], truth: CaptionTruth) -> dict[str, float | int]:
    """Compare captions with what is known of their images.

    Parameters
    ----------
    captions : by image, at least one.
    truth : of the dataset.

    Returns
    -------
    dict
        In per cent: `parsed`, the captions that are understood, and `true`, those of which
        everything is right, both of all captions; for each facet `true_<facet>`, those of which it
        is right, of the parsed captions that mention it (without any, the column is missing), and
        `says_<facet>`, those that mention it, of all that are parsed.
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
