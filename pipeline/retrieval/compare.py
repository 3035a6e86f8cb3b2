"""Whether one system is better than another: a paired bootstrap over test images and seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.retrieval.bootstrap import LEVEL, RankedGallery, margins
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import EmbeddingsError
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import Protocol, resolve_protocol
from pipeline.retrieval.ranking.ranks import image_rows, rank_both_ways
from pipeline.retrieval.recall import table_of_ranks


@dataclass(frozen=True)
class Comparison:
    """The `rsum` of two systems on the same images.

    Attributes
    ----------
    first, second : of each training.
    low, high : the 95 % interval of the difference of their means.
    p : two-sided: twice the share of draws in which the difference has the other sign, at most 1.
    num_images : test images.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]
    low: float
    high: float
    p: float
    num_images: int

    @property
    def margin(self) -> float:
        """The mean of the first system less that of the second."""
        return float(np.mean(self.first) - np.mean(self.second))

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def compare(
    first: Sequence[str | Path],
    second: Sequence[str | Path],
    *,
    protocol: str = "all",
    captions_per_image: int | None = 5,
    resamples: int = 2000,
) -> Comparison:
    """Compare the embeddings of two systems of the same test images.

    See `pipeline.retrieval.bootstrap.margins`. Three trainings tell little of the spread of a
    system's trainings: read an interval that all but holds 0 as undecided.

    Parameters
    ----------
    first, second : embedding files of each system, one a training (a seed), one or more.
    protocol, captions_per_image : as in `pipeline.retrieval.evaluate.evaluate`.
    resamples : draws, at least 1.

    Raises
    ------
    EmbeddingsError
        A file is missing or damaged, or has other images than the first.
    ProtocolError
        There is no such protocol, or a file cannot meet it.
    """
    asked = resolve_protocol(protocol, captions_per_image)
    sides: list[list[_Ranked]] = [[], []]
    for side, files in zip(sides, (first, second), strict=True):
        for file in files:
            side.append(_rank(Path(file), asked))
            known = sides[0][0]
            if side[-1].image_ids != known.image_ids:
                raise EmbeddingsError(
                    f"{file} has {len(side[-1].image_ids)} images that are not the "
                    f"{len(known.image_ids)} of {first[0]} in the same order; embed the same split "
                    "of the same dataset"
                )
    one, other = ([training.galleries for training in side] for side in sides)
    draws = margins(one, other, resamples)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = 2 * min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0)))
    ours, theirs = (tuple(training.rsum for training in side) for side in sides)
    return Comparison(ours, theirs, float(low), float(high), min(p, 1.0), len(known.image_ids))


class _Ranked(NamedTuple):
    image_ids: tuple[str, ...]
    galleries: list[RankedGallery]
    rsum: float


def _rank(file: Path, protocol: Protocol) -> _Ranked:
    space = read_embeddings(file)
    found, sums = [], []
    for gallery in galleries(space, protocol):
        ranks = rank_both_ways(gallery)
        found.append(RankedGallery(*ranks, image_rows(gallery)))
        sums.append(table_of_ranks(gallery, ranks)["rsum"])
    return _Ranked(tuple(space.image_ids), found, float(np.mean(sums)))
