"""Candidate pairs whose pixels match too: crops, mirror images and copies."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.images.shown_image import shown_image
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted
from pipeline.studies import StudyError
from pipeline.studies.near_duplicates.alignment import Field, Templates, correlation, small_grey
from pipeline.studies.near_duplicates.pairs import DECIMALS, Pairs
from pipeline.studies.near_duplicates.parts import Subset, located

CANDIDATES = 16
"""Number of nearest rows of each row whose images are compared."""

LEAST_COSINE = 0.5
"""Default minimal cosine of a candidate, for any recipe."""

LEAST_CORRELATION = 0.65
"""Minimal correlation of a confirmed pair; docs/lab/duplicates.md has the measurements."""

_FIELDS_HELD = 4096
_NAMED = 3


class Nearest:
    """The nearest partners of each row, updated pair by pair, in memory linear in the rows."""

    def __init__(self, rank: RowNumbers) -> None:
        """Start without pairs; `rank` is that of `Grouping`."""
        self._rank = rank
        # (n,) each: nearest partners of a row first, ties by rank; complete once `pairs` was read.
        self.rows: RowNumbers = np.empty(0, np.int64)
        self.partners: RowNumbers = np.empty(0, np.int64)
        self._scores: npt.NDArray[np.float64] = np.empty(0)
        self._added: list[Pairs] = []

    def add(self, pairs: Pairs) -> None:
        """Add pairs, keeping the nearest partners."""
        self._added.append(pairs)
        # Merged once as many are buffered as are kept: a constant number of sorts per pair.
        if sum(len(some.first) for some in self._added) > len(self.rows):
            self._merge()

    def _merge(self) -> None:
        first, second, scores = (
            np.concatenate([getattr(some, name) for some in self._added])
            for name in ("first", "second", "scores")
        )
        self._added = []
        rows = np.concatenate((self.rows, first, second))
        partners = np.concatenate((self.partners, second, first))
        scores = np.concatenate((self._scores, scores, scores))
        order = np.lexsort((self._rank[partners], -scores, rows))
        rows, partners = rows[order], partners[order]
        # Graphs return some pairs twice.
        once = (np.diff(rows, prepend=-1) != 0) | (np.diff(partners, prepend=-1) != 0)
        rows, partners, order = rows[once], partners[once], order[once]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        rank = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
        near = rank < CANDIDATES
        self.rows, self.partners = rows[near], partners[near]
        self._scores = scores[order[near]]

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        """The pairs (n, 2), each once, the smaller row first, sorted."""
        if self._added:
            self._merge()
        both = np.stack((self.rows, self.partners), axis=1)
        return np.unique(np.sort(both, axis=1), axis=0)


def confirmed_pairs(
    candidates: Iterable[Pairs],
    parts: Sequence[Subset],
    rank: RowNumbers,
    images: Mapping[Path, Manifest],
    monitor: Monitor = QUIET,
    least: float = LEAST_CORRELATION,
) -> Iterator[Pairs]:
    """Yield the candidates whose images align, scored by the correlation of their pixels."""
    nearest = Nearest(rank)
    for some_pairs in candidates:
        nearest.add(some_pairs)
    pairs = nearest.pairs
    rows = np.unique(pairs)
    greys: dict[int, Image.Image] = {}
    with monitor.progress("images of candidates", "image") as progress:
        for done, row in enumerate(rows.tolist(), 1):
            if (grey := _grey(*located(parts, row), images)) is not None:
                greys[row] = grey
            progress(done, len(rows), done - len(greys))
    if unread := [row for row in rows.tolist() if row not in greys]:
        named = ", ".join(located(parts, row)[1] for row in unread[:_NAMED])
        monitor.log(
            f"{len(unread)} of {counted(len(rows), 'image')} of candidates are missing or cannot "
            f"be decoded and match nothing, first {named}"
        )
    field_of = lru_cache(_FIELDS_HELD)(lambda row: Field.of(greys[row]))
    scores = np.full(len(pairs), -1.0)
    # Either image may be the part: each is searched for in all its partners.
    directed = np.concatenate((pairs, pairs[:, ::-1]))
    order = np.argsort(directed[:, 0], kind="stable")
    ends = np.searchsorted(directed[order, 0], rows, side="right")
    with monitor.progress("aligned", "image") as progress:
        for done, (row, end) in enumerate(zip(rows.tolist(), ends.tolist(), strict=True), 1):
            templates: dict[tuple[int, int], Templates] = {}
            for at in order[ends[done - 2] if done > 1 else 0 : end].tolist():
                other = int(directed[at, 1])
                if row in greys and other in greys:
                    field = field_of(other)
                    if field.shape not in templates:
                        templates[field.shape] = Templates.of(greys[row], field.shape)
                    pair = at % len(pairs)
                    scores[pair] = max(scores[pair], correlation(field, templates[field.shape]))
            progress(done, len(rows), 0)
    scores = np.round(np.minimum(scores, 1.0), DECIMALS)
    above = scores >= least
    yield Pairs(pairs[above, 0], pairs[above, 1], scores[above])


def _grey(part: Subset, row_id: str, images: Mapping[Path, Manifest]) -> Image.Image | None:
    manifest = images[part.features.folder]
    if row_id not in manifest.by_id:
        raise StudyError(
            f"{part.features.folder} has a row {row_id!r}, which is not an image of "
            f"{manifest.name} ({manifest.image_root}); name the images of these features"
        )
    image = shown_image(manifest.path_by_id[row_id], manifest.media).image
    return None if image is None else small_grey(image)
