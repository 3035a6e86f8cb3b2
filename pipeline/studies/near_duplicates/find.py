"""The job of `pipeline duplicates`: groups of near-duplicate images in feature sets."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.plain_images import images_of
from pipeline.images.recipes import RECIPES
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.wording import counted
from pipeline.studies import StudyError
from pipeline.studies.near_duplicates.confirmed import (
    LEAST_CORRELATION,
    LEAST_COSINE,
    confirmed_pairs,
)
from pipeline.studies.near_duplicates.graph_pairs import GraphPairs
from pipeline.studies.near_duplicates.groups import Grouping
from pipeline.studies.near_duplicates.pairs import Pairs, exact_pairs
from pipeline.studies.near_duplicates.parts import Subset, located, parts_of_sets, parts_of_splits

THRESHOLDS = {"dct-thumbnail": 0.7, "efficientnet-lite0-pool": 0.84}
"""Minimal cosine of near-duplicates by recipe, with the recipe's own weights."""


@dataclass(frozen=True)
class Duplicate:
    """An image with a near-duplicate."""

    id: str
    features: Path
    split: str  # its split; "" without a dataset, or if it is not in it
    nearest: str  # id of the most similar image; ties in the order of the sets, then of the ids
    score: float  # their cosine, or the correlation of their pixels, rounded to 6 decimals


@dataclass(frozen=True)
class DuplicateGroup:
    """Images connected by pairs that reach the threshold."""

    images: tuple[Duplicate, ...]  # at least two images, in the order of the sets, then of the ids

    @property
    def score(self) -> float:
        """The highest score of a pair."""
        return max(image.score for image in self.images)


@dataclass(frozen=True)
class Duplicates:
    """Near-duplicate images."""

    groups: tuple[DuplicateGroup, ...]  # by descending score, then by first id
    threshold: float  # minimal cosine of a pair
    compared: int
    failed: int  # number of rows without features, which match nothing
    recall: float | None = None
    """Of an approximate search, estimated: share of up to 200 rows whose nearest row it finds."""
    correlation: float | None = None
    """Minimal pixel correlation of a pair; None if only cosines are used."""

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[DuplicateGroup]:
        return iter(self.groups)

    @property
    def images(self) -> list[Duplicate]:
        """The images of all groups."""
        return [image for group in self.groups for image in group.images]


def duplicates(
    features: str | Path,
    others: str | Path | None = None,
    *,
    dataset: str | Path | Manifest | None = None,
    splits: str | Sequence[str] = (),
    between: bool = False,
    threshold: float | None = None,
    approximate: bool = False,
    images: str | Path | Manifest | Sequence[str | Path | Manifest] = (),
    monitor: Monitor = QUIET,
) -> Duplicates:
    """Find near-duplicate images by the cosine of their features, optionally also by their pixels.

    Grids and other rows of several vectors are compared by their mean vector. Rows without features
    match nothing and are counted. The result does not depend on the row order, unless it is
    approximate.

    Parameters
    ----------
    features : str or Path. Folder of a feature set, of any recipe.
    others : str, Path or None. A second set of the same recipe: compare its rows with those of
        `features` only. None: compare the rows of `features` with each other.
    dataset : str, Path, Manifest or None. The prepared dataset of `features`, for splits.
    splits : str or sequence of str. Splits to compare; () for all rows.
    between : bool. Compare only images of different splits.
    threshold : float or None. Minimal cosine of a pair, above 0 and at most 1; None: the calibrated
        one of the recipe, see `THRESHOLDS`, or 0.5 if pixels
        decide.
    approximate : bool. Find pairs through a graph, for millions of rows. All rows are held in
        memory, and some pairs may be missed.
    images : str, Path, Manifest or two of them. The prepared dataset of `features`, and that of
        `others`, or their image folders. If specified, the nearest rows are candidates, and the
        pixels of their images decide, which also finds crops: see
        `pipeline.studies.near_duplicates.confirmed`.
    monitor : Monitor. Receives progress and a line of counts.

    Returns
    -------
    Duplicates
        Groups of images; iterates over them.

    Raises
    ------
    WrongUsage
        A threshold out of range, a repeated set, splits without a dataset, or images of only some
        sets.
    StudyError
        No threshold is calibrated for the recipe, the features cannot be compared, or the images
        lack the id of a row.
    ShardError, DatasetError
        The sets or the dataset are unreadable, or an image of a split has no row.
    EmbeddingsError
        faiss is not installed, which `approximate` needs.

    Examples
    --------
    >>> found = pipeline.duplicates("data/features/mine/efficientnet-lite0-pool")
    >>> found.compared, found.threshold
    (24, 0.84)
    >>> for group in found:
    ...     assert len(group.images) > 1 and group.score >= 0.84

    Only pairs between splits, which are leaks from training to test:

    >>> leaks = pipeline.duplicates(
    ...     "data/features/mine/efficientnet-lite0-pool", dataset="data/mine", between=True
    ... )
    """
    names = [splits] if isinstance(splits, str) else list(dict.fromkeys(splits))
    first = FeatureSet(Path(features))
    manifest = _manifest(dataset)
    given = [images] if isinstance(images, str | Path | Manifest) else list(images)
    if given and len(given) != (1 if others is None else 2):
        raise WrongUsage("`images=...` must name the images of each feature set once")
    if others is not None:
        if dataset is not None or names or between:
            raise WrongUsage("splits belong to one feature set: two sets are compared as a whole")
        if Path(others).resolve() == first.folder.resolve():
            raise WrongUsage(f"{others} is specified twice; omit one to compare its own rows")
        parts = parts_of_sets([first, FeatureSet(Path(others))])
        between = True
    elif names or between:
        if manifest is None:
            raise WrongUsage(
                "`splits=...` and `between=True` need `dataset=...`, which has the splits"
            )
        parts = parts_of_splits(first, manifest, names or [*manifest.counts])
        if between and len(parts) < 2:
            raise WrongUsage(
                f"`between=True` compares different splits, but there is one: {parts[0].split}"
            )
    else:
        parts = parts_of_sets([first])
    return near_duplicates(
        parts,
        between=between,
        threshold=threshold,
        approximate=approximate,
        manifest=manifest,
        images=_images(parts, given, monitor) if given else None,
        monitor=monitor,
    )


def near_duplicates(
    parts: Sequence[Subset],
    *,
    between: bool,
    threshold: float | None = None,
    approximate: bool = False,
    manifest: Manifest | None = None,
    images: Mapping[Path, Manifest] | None = None,
    monitor: Monitor = QUIET,
) -> Duplicates:
    """Find near-duplicates among the rows of parts of one recipe, as `duplicates`."""
    started = time.monotonic()
    least = _threshold(threshold, parts[0].features, images is not None)
    rank = _rank(parts)
    grouping = Grouping(rank)
    graph: GraphPairs | None = None
    with monitor.progress("duplicates", "row" if approximate else "block") as progress:
        found_pairs: Iterator[Pairs]
        if approximate:
            graph = GraphPairs(parts, least, between=between)
            found_pairs = graph.pairs(progress)
        else:
            found_pairs = exact_pairs(parts, least, between=between, progress=progress)
        if images is not None:
            found_pairs = confirmed_pairs(found_pairs, parts, rank, images, monitor)
        for pairs in found_pairs:
            grouping.add(pairs)

    def image(row: int) -> Duplicate:
        part, row_id = located(parts, row)
        _, nearest = located(parts, int(grouping.nearest[row]))
        split = part.split
        if not split and manifest is not None and row_id in manifest.by_id:
            split = manifest.by_id[row_id].split
        return Duplicate(row_id, part.features.folder, split, nearest, float(grouping.score[row]))

    result = Duplicates(
        tuple(DuplicateGroup(tuple(map(image, rows.tolist()))) for rows in grouping.groups()),
        least,
        sum(map(len, parts)),
        sum(part.failed for part in parts),
        graph.recall if graph else None,
        None if images is None else LEAST_CORRELATION,
    )
    monitor.log(f"{summary(result)}, {time.monotonic() - started:.1f} s")
    return result


def summary(result: Duplicates) -> str:
    """Return the counts of a result on one line."""
    left_out = f", {result.failed} without features left out" if result.failed else ""
    recall = "" if result.recall is None else f", nearest rows found: {100 * result.recall:.1f} %"
    aligned = "" if result.correlation is None else "whose pixels align, "
    return (
        f"{counted(len(result), 'group')} of {counted(len(result.images), 'image')} {aligned}at "
        f"cosine {result.threshold:g} or more among {counted(result.compared, 'row')}"
        f"{left_out}{recall}"
    )


def default_threshold(features: FeatureSet) -> float:
    """Return the calibrated threshold of a feature set."""
    header = features.index.header
    name = header.recipe.get("name")
    if name not in THRESHOLDS or header.weights != RECIPES[name].weights:
        raise StudyError(
            f"{features.folder}: no threshold is calibrated for {name!r} with the weights "
            f"{header.weights!r}; set `threshold=...`, or extract one of "
            f"{', '.join(THRESHOLDS)} with its own weights"
        )
    return THRESHOLDS[name]


def _threshold(given: float | None, features: FeatureSet, aligned: bool) -> float:
    if given is None:
        return LEAST_COSINE if aligned else default_threshold(features)
    if not 0 < given <= 1:
        raise WrongUsage(f"`threshold={given:g}` is not a cosine above 0 and at most 1")
    return given


def _manifest(dataset: str | Path | Manifest | None) -> Manifest | None:
    return read_manifest(dataset) if isinstance(dataset, str | Path) else dataset


def _images(
    parts: Sequence[Subset], given: Sequence[str | Path | Manifest], monitor: Monitor
) -> dict[Path, Manifest]:
    folders = dict.fromkeys(part.features.folder for part in parts)
    return {
        folder: images_of(source, monitor.log, follow_links=True)
        for folder, source in zip(folders, given, strict=True)
    }


def _rank(parts: Sequence[Subset]) -> RowNumbers:
    """Return the position of each row in the order of the sets, then of the ids, (rows,)."""
    folders = list(dict.fromkeys(part.features.folder for part in parts))
    keys = [(folders.index(part.features.folder), row_id) for part in parts for row_id in part.ids]
    rank: RowNumbers = np.empty(len(keys), np.int64)
    rank[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return rank
