"""Embedding files as systems to compare: ranks in both directions, and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.measures import COMPARED, DIRECTIONS, IN_RSUM, Column, measure_of
from pipeline.retrieval.ranking.bootstrap import RankedGallery
from pipeline.retrieval.ranking.galleries import galleries
from pipeline.retrieval.ranking.protocols import Protocol
from pipeline.retrieval.ranking.ranks import Ranks, query_rows, rank_both_ways
from pipeline.retrieval.ranking.splits import of_split
from pipeline.store.errors import UnknownName
from pipeline.store.wording import counted, did_you_mean
from pipeline.studies.significance.paired import Doubles, Totals

_BY_LENGTH = Column(
    "text_to_image_r10_long_less_short", "t→i R@10, long less short captions", limits=(-100, 100)
)
MEASURES = {**COMPARED, _BY_LENGTH.name: _BY_LENGTH}
"""Figures of a recall table, and R@10 of captions longer than the median minus that of others."""
DEFAULT_MEASURES = ("rsum",)


@dataclass(frozen=True)
class Gallery:
    """One gallery of a file."""

    image_ids: Sequence[str]  # images in the gallery, in row order
    image_of_caption: Mapping[str, str]  # image id by caption id
    ranked: RankedGallery


@dataclass(frozen=True)
class RankedEmbeddings:
    """Ranks of one training of a system, an `Outputs`."""

    file: Path
    galleries: tuple[Gallery, ...]
    same_images: bool = False  # whether all galleries have the same images, with different captions
    same_captions: bool = True  # whether compared files need the same captions
    lengths: Callable[[], Mapping[str, int]] | None = None
    """Returns the word count of each caption by id."""

    def require_same(self, other: "RankedEmbeddings") -> None:
        """Raise unless the galleries are those of another file."""
        for ours, theirs in zip(self.galleries, other.galleries, strict=True):
            if tuple(ours.image_ids) != tuple(theirs.image_ids):
                raise EmbeddingsError(
                    f"{self.file} has {len(ours.image_ids)} images that are not the "
                    f"{len(theirs.image_ids)} of {other.file} in the same order"
                    f"{_first_apart(ours.image_ids, theirs.image_ids)}; embed the same split of "
                    "the same dataset"
                )
            one, two = ours.image_of_caption, theirs.image_of_caption
            if self.same_captions and dict(one) != dict(two):
                apart = [c for c in (*one, *two) if one.get(c) != two.get(c)]
                raise EmbeddingsError(
                    f"{self.file} has {counted(len(one), 'caption')} that are not the {len(two)} "
                    f"of {other.file}: {counted(len(apart), 'id differs', 'ids differ')}, first "
                    f"{apart[0]!r}; ranks among other captions are not comparable: embed the same "
                    "captions, or count as many of each image (`captions_per_image=...`)"
                )

    def parts(self, measure: str) -> list[Totals]:
        """Return the parts of a figure of `MEASURES`, one per gallery with its own images."""
        if measure not in MEASURES:
            raise UnknownName(
                f"embedding files have no figure {measure!r}; {did_you_mean(measure, MEASURES)}"
            )
        if measure == _BY_LENGTH.name:
            parts = [self._by_length(gallery) for gallery in self.galleries]
        else:
            parts = [_figure(gallery.ranked, measure) for gallery in self.galleries]
        return [_mean_of_sets(parts)] if self.same_images else parts

    def _by_length(self, gallery: Gallery) -> Totals:
        """Return the R@10 of long captions minus that of short ones."""
        if self.lengths is None:
            raise EmbeddingsError(
                f"{self.file} has no texts: caption lengths are in a dataset; pass `dataset=...`"
            )
        lengths = self.lengths()
        if missing := [c for c in gallery.image_of_caption if c not in lengths]:
            raise EmbeddingsError(
                f"{self.file} has {counted(len(missing), 'caption')} that the dataset lacks, "
                f"first {missing[0]!r}; pass the dataset that it was embedded from"
            )
        words = np.array([lengths[c] for c in gallery.image_of_caption])
        long = words > np.median(words)
        if not long.any():
            raise EmbeddingsError(f"{self.file}: no caption has more words than the median one")
        ranked = gallery.ranked
        images = len(ranked.image_to_text)
        each = np.concatenate(
            [
                _sums(ranked.image_rows[of], 100.0 * (ranked.text_to_image[of] < 10), images)
                for of in (long, ~long)
            ]
        )
        return Totals(each, lambda totals: totals[1] / totals[0] - totals[3] / totals[2])


def read_ranked(
    file: str | Path,
    protocol: Protocol,
    *,
    same_captions: bool = True,
    lengths: Callable[[], Mapping[str, int]] | None = None,
) -> RankedEmbeddings:
    """Rank an embedding file in both directions."""
    space = read_embeddings(Path(file))
    try:
        space = of_split(space, None)
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{file} {error}") from error
    ranked = tuple(
        Gallery(
            gallery.image_ids,
            dict(zip(gallery.caption_ids, gallery.caption_image_ids, strict=True)),
            RankedGallery(*rank_both_ways(gallery), query_rows(gallery)),
        )
        for gallery in galleries(space, protocol)
    )
    return RankedEmbeddings(Path(file), ranked, bool(protocol.sets), same_captions, lengths)


def rsum_of(gallery: RankedGallery) -> Totals:
    """Return the sum of the six R@K of a gallery, 0-600."""
    return _figure(gallery, "rsum")


def _figure(gallery: RankedGallery, measure: str) -> Totals:
    """Return a figure that is a sum of means over the queries of one or both directions."""
    images = len(gallery.image_to_text)
    columns = IN_RSUM if measure == "rsum" else (measure,)
    sides = {
        DIRECTIONS[0]: (gallery.image_to_text, np.arange(images)),
        DIRECTIONS[1]: (gallery.text_to_image, gallery.image_rows),
    }
    each = []
    for name in columns:
        direction, of = measure_of(name)
        ranks, rows = sides[direction]
        assert of.each is not None
        each.append(_sums(rows, of.each(ranks).astype(np.float64), images))
    return Totals(np.concatenate(each), lambda totals: np.sum(totals[1::2] / totals[0::2], axis=0))


def _sums(rows: Ranks, values: Doubles, images: int) -> Doubles:
    """Return (2, images): number of queries of an image, and the sum of their values."""
    number = np.bincount(rows, minlength=images).astype(np.float64)
    return np.stack([number, np.bincount(rows, values, images)])


def _mean_of_sets(parts: Sequence[Totals]) -> Totals:
    """Return the mean of a figure over galleries of the same images, resampled together."""
    ends = np.cumsum([len(part.each) for part in parts])[:-1]
    return Totals(
        np.concatenate([part.each for part in parts]),
        lambda totals: np.mean(
            [part.of_totals(of) for part, of in zip(parts, np.split(totals, ends), strict=True)],
            axis=0,
        ),
    )


def _first_apart(ours: Sequence[str], theirs: Sequence[str]) -> str:
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return f", the first at row {number}: {one!r} and {other!r}"
    return ""
