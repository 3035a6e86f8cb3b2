"""Merging several feature sets of one kind."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from pipeline.store.builder.arrays import build_from_rows
from pipeline.store.one_or_many import values_of
from pipeline.store.packed import PackedTexts, repeated_texts
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OtherShard, RowBlock, ShardError
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.layout import CRC32, STATUS


def merge(
    sets: Sequence[FeatureSet | str | Path],
    out: str | Path,
    *,
    rows_per_shard: int | None = None,
    compress: bool = False,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Write all rows of all sets, in order, as one set.

    If an id is in several sets, its first row is kept; its rows must have the same status, CRC-32
    and source CRC-32. Failed rows stay failed. Software versions may differ; the result records
    all of them.

    Parameters
    ----------
    sets : sequence of FeatureSet, str or Path. Feature sets or their folders, with the same recipe,
        weights, dataset, axes, shape and dtype.
    out : str or Path. Folder of the shards.
    rows_per_shard : int or None. Rows per shard; None: as many as fit into 256 MiB, at most 65,536.
    compress : bool. Store rows in small gzip chunks.
    monitor : Monitor. Receives the progress, and a log line if rows were in several sets.

    Returns
    -------
    FeatureIndex
        Index of the finished set.

    Raises
    ------
    OtherShard
        A set differs from the first; the field is named.
    ShardError
        Sets have different rows of the same id.

    Examples
    --------
    >>> row, recipe = np.ones((1, 3), np.float32), {"name": "mine"}
    >>> for name in ("one", "two"):
    ...     index = pipeline.write_features(f"features/{name}", [f"{name}.jpg"], row, recipe=recipe)
    >>> pipeline.merge(["features/one", "features/two"], "features/both").rows
    2
    """
    sets = values_of(sets, (str, Path), "a feature set or its folder")
    opened = [given if isinstance(given, FeatureSet) else FeatureSet(given) for given in sets]
    first = opened[0]
    for other in opened[1:]:
        if unlike := first.index.header.difference(other.index.header.metadata()):
            raise OtherShard(
                f"{other.folder} {unlike} as {first.folder} has; only features of one kind can be "
                "merged"
            )
    ids, origin = _join(opened)
    if repeated := sum(map(len, opened)) - len(ids):
        monitor.log(f"{repeated} rows were in several folders and are kept once")
    first_row = np.cumsum([0, *map(len, opened)])

    def rows(start: int, stop: int) -> RowBlock:
        numbers = np.searchsorted(first_row, origin[start:stop], side="right") - 1
        blocks = [
            block
            for number, group in groupby(range(stop - start), key=lambda at: int(numbers[at]))
            for block in opened[number].row_blocks(
                origin[start:stop][list(group)] - first_row[number]
            )
        ]
        return RowBlock.joined(blocks)

    software = "; ".join(dict.fromkeys(features.index.header.created_by for features in opened))
    header = first.index.header
    training_sets = [name for features in opened for name in features.index.header.trained_on]
    trained_on = tuple(dict.fromkeys(training_sets))
    contents = [[entry.content_sha256 for entry in features.index.shards] for features in opened]
    with monitor.progress("merge", "row") as progress:
        return build_from_rows(
            out,
            replace(header.renewed, created_by=software, trained_on=trained_on),
            ids,
            rows,
            rows_per_shard=rows_per_shard,
            compress=compress,
            inputs=contents,
            progress=progress,
        )


def _join(sets: Sequence[FeatureSet]) -> tuple[PackedTexts, np.ndarray]:
    """Return each id once, and the number (n,) of its first row, counted over all sets."""
    every = PackedTexts(row_id for features in sets for row_id in features.ids)
    is_first = np.ones(len(every), bool)
    if repeated := {*repeated_texts(every)}:
        holder: dict[str, FeatureSet] = {}
        row = 0
        for features in sets:
            for row_id in features.ids:
                first = holder.setdefault(row_id, features) if row_id in repeated else features
                if first is not features:
                    _require_same_row(first, features, row_id)
                    is_first[row] = False
                row += 1
        every = PackedTexts(every[at] for at in np.flatnonzero(is_first).tolist())
    return every, np.flatnonzero(is_first)


def _require_same_row(first: FeatureSet, other: FeatureSet, row_id: str) -> None:
    here, there = (int(features.rows_of([row_id])[0]) for features in (first, other))
    columns = [(what, ours, other.sources[what]) for what, ours in first.sources.items()]
    columns.insert(0, (STATUS, first.status, other.status))
    columns.append((CRC32, first.crc32, other.crc32))
    for what, of_first, of_other in columns:
        if (ours := of_first[here]) != (theirs := of_other[there]):
            raise ShardError(
                f"id {row_id!r} is row {here} of {first.folder} and row {there} of "
                f"{other.folder}, with another {what} ({ours} and {theirs}); delete one of them, "
                "or extract it once"
            )
