"""Whether images are nearer to their captions than to foils of them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.similarity import SIMILARITIES

_TIE = 1e-6  # relative difference of similarities that rounding of a float32 sum may cause
_Rows = npt.NDArray[np.float32]
_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Robustness:
    """How well a space distinguishes captions from their foils, in per cent."""

    pairs: int  # number of captions with a foil of this kind
    right: float
    """Pairs whose image is nearer to the caption; ties count half, so that chance is 50."""
    ties: float  # pairs with equal similarity, such as shuffled words for a sum of word vectors
    r1: float
    """Images of these captions whose nearest caption is one of their own, among all captions."""
    r1_with_foils: float  # the same among all captions and all foils of this kind


def robustness(
    images: _Rows,
    captions: _Rows,
    image_of_caption: npt.NDArray[np.int64],
    foils: _Rows,
    caption_of_foil: npt.NDArray[np.int64],
    similarity: str,
) -> Robustness:
    """Compare images (n, ...) with all captions and with the foils, at least one, of one kind."""
    named = SIMILARITIES[similarity]
    sides = named.prepare(captions), named.prepare(foils)
    of_foil = image_of_caption[caption_of_foil]
    margins = np.empty(len(foils))
    nearest, with_foils = [], []
    for image in np.unique(of_foil).tolist():
        query = named.prepare(images[image : image + 1])
        to_captions, to_foils = (named.between(query, side)[0] for side in sides)
        mine = np.flatnonzero(of_foil == image)
        margins[mine] = _margins(to_captions[caption_of_foil[mine]], to_foils[mine])
        of_image = image_of_caption == image
        best = to_captions[of_image].max(keepdims=True)
        others = to_captions[~of_image]
        nearest.append(not len(others) or bool(_margins(best, others.max(keepdims=True))[0] > 0))
        beaten = bool(_margins(best, to_foils.max(keepdims=True))[0] <= 0)
        with_foils.append(nearest[-1] and not beaten)
    return Robustness(
        pairs=len(foils),
        right=100 * float(np.mean((margins > 0) + (margins == 0) / 2)),
        ties=100 * float(np.mean(margins == 0)),
        r1=100 * float(np.mean(nearest)),
        r1_with_foils=100 * float(np.mean(with_foils)),
    )


def _margins(right: _Scores, wrong: _Scores) -> _Scores:
    """Return differences of similarities, with those within rounding set to 0."""
    margins = right - wrong
    sizes = np.maximum(np.abs(right), np.abs(wrong))
    return np.where(np.abs(margins) <= _TIE * sizes, 0.0, margins)
