"""Whether one system is better than another: a paired bootstrap over test images and seeds.

Of few images bootstrap intervals are too narrow, so that their signs are flipped instead, and there
is no verdict. `python -m bench.comparing` measures how often either is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.one_or_many import values_of
from pipeline.retrieval.bootstrap import LEVEL, RankedGallery, image_scores, margins
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import EmbeddingsError
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import Protocol, resolve_protocol
from pipeline.retrieval.ranking.ranks import query_rows, rank_both_ways
from pipeline.retrieval.ranking.splits import of_split
from pipeline.retrieval.recall import table_of_ranks
from pipeline.retrieval.sign_flips import Doubles, sign_flip_interval, sign_flip_p
from pipeline.retrieval.small_galleries import FEWEST_IMAGES

_FEWEST_DIFFERING = 6


@dataclass(frozen=True)
class Comparison:
    """The `rsum` of two systems on the same images.

    Attributes
    ----------
    first, second : of each training.
    low, high : the 95 % interval of the difference of their means.
    p : two-sided: twice the share of draws in which the difference has the other sign, at most 1;
        of fewer than `FEWEST_IMAGES` the exact one of `sign_flip_p`.
    num_images : test images.
    differing : those of them on which the two differ.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]
    low: float
    high: float
    p: float
    num_images: int
    differing: int

    @property
    def margin(self) -> float:
        """The mean of the first system less that of the second."""
        return float(np.mean(self.first) - np.mean(self.second))

    @property
    def enough(self) -> bool:
        """Whether there are enough images for a verdict, and enough on which the two differ.

        Fewer than 6 differences are of one sign by chance in more than 5 of 100 comparisons.
        """
        return self.num_images >= FEWEST_IMAGES and self.differing >= _FEWEST_DIFFERING

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 0, of enough images."""
        return self.enough and (self.low > 0 or self.high < 0)

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if not self.differing:
            return "equal on every image"
        if self.num_images < FEWEST_IMAGES:
            return "too few images to decide"
        if not self.enough:
            return f"too few images to decide, as {self.differing} of them differ"
        return "decided" if self.decided else "too close to call"


def compare(
    first: str | Path | Sequence[str | Path],
    second: str | Path | Sequence[str | Path],
    *,
    protocol: str = "all",
    captions_per_image: int | None = 5,
    resamples: int = 2000,
) -> Comparison:
    """Compare the embeddings of two systems of the same test images.

    See `pipeline.retrieval.bootstrap.margins`; of fewer than `FEWEST_IMAGES` images
    `pipeline.retrieval.sign_flips`, which leave the spread of trainings out. Three trainings
    tell little of the spread of a system's trainings: read an interval that all but holds 0 as
    undecided.

    Parameters
    ----------
    first, second : str, Path or sequence of them. Embedding files of each system, one for each
        training (seed).
    protocol, captions_per_image : see `pipeline.retrieval.evaluate.evaluate`.
    resamples : int. Draws, at least 1.

    Raises
    ------
    EmbeddingsError
        A file is missing or damaged, or has other images than the first.
    ProtocolError
        There is no such protocol, or a file cannot meet it.
    """
    asked = resolve_protocol(protocol, captions_per_image)
    systems = [values_of(f, (str, Path), "an embedding file (path)") for f in (first, second)]
    sides: list[list[_Ranked]] = [[], []]
    for side, files in zip(sides, systems, strict=True):
        for file in files:
            side.append(_rank(Path(file), asked))
            known = sides[0][0]
            if side[-1].image_ids != known.image_ids:
                raise EmbeddingsError(
                    f"{file} has {len(side[-1].image_ids)} images that are not the "
                    f"{len(known.image_ids)} of {systems[0][0]} in the same order; embed the "
                    "same split of the same dataset"
                )
    one, other = ([training.galleries for training in side] for side in sides)
    # Sets of captions are galleries of the same images.
    each = (_mean_scores(one) - _mean_scores(other)).reshape(asked.sets or 1, -1)
    differences = each.mean(axis=0)
    # Means that are equal but for rounding do not differ.
    differences[np.isclose(differences, 0, atol=1e-9)] = 0.0
    ours, theirs = (tuple(training.rsum for training in side) for side in sides)
    images, differing = len(differences), int(np.count_nonzero(differences))
    if images < FEWEST_IMAGES:
        low, high = sign_flip_interval(differences)
        return Comparison(ours, theirs, low, high, sign_flip_p(differences), images, differing)
    draws = margins(one, other, resamples)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = 2 * min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0)))
    return Comparison(ours, theirs, float(low), float(high), min(p, 1.0), images, differing)


def _mean_scores(trainings: Sequence[Sequence[RankedGallery]]) -> Doubles:
    """Return what each image adds to `rsum`, gallery after gallery, the mean over trainings."""
    of_each = [np.concatenate([image_scores(g) for g in of]) for of in trainings]
    means: Doubles = np.mean(of_each, axis=0)
    return means


class _Ranked(NamedTuple):
    image_ids: tuple[str, ...]
    galleries: list[RankedGallery]
    rsum: float


def _rank(file: Path, protocol: Protocol) -> _Ranked:
    space = read_embeddings(file)
    try:
        space = of_split(space, None)
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{file} {error}") from error
    found, sums = [], []
    for gallery in galleries(space, protocol):
        ranks = rank_both_ways(gallery)
        found.append(RankedGallery(*ranks, query_rows(gallery)))
        sums.append(table_of_ranks(gallery, ranks)["rsum"])
    return _Ranked(tuple(space.image_ids), found, float(np.mean(sums)))
