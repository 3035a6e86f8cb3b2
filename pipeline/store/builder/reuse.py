"""Earlier sets: rows that an update can copy, and whether features are the requested ones."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.builder.unfinished_shard import JOURNAL, open_rows
from pipeline.store.current.replace import Contents, mark_superseded
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import DamagedShard, FeatureHeader, OtherShard, ShardError
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.side_by_side import is_view


def older_rows(
    paths: Iterable[Path],
    header: FeatureHeader,
    ids: Sequence[str],
    broken: Mapping[Path, str],  # must not be opened, and why
    vouched: Iterable[Path] = (),  # bytes already verified
) -> tuple[dict[Path, RowNumbers], list[str]]:
    """Return the files with rows of an updated set, and the errors of corrupt ones.

    Each has the row number in the updated set of each of its rows, (n,) int64; -1: not in the set,
    or provided by a file before it.
    """
    older: dict[Path, RowNumbers] = {}
    damaged: list[str] = []
    taken = np.zeros(len(ids), bool)
    verified, index = {*vouched}, TextIndex(ids)
    for path in paths:
        if path in broken:
            damaged.append(f"{path} is {broken[path]}")
            continue
        try:
            file = open_rows(path, header)
            # Only the file's SHA-256 or this check of its rows proves that it is intact.
            if isinstance(file, ShardFile) and path not in verified:
                file.inspect(0)
        except OtherShard:
            continue
        except DamagedShard as error:
            damaged.append(str(error))
            continue
        rows = index.rows_of(file.ids, len(file.ids))
        rows[(rows >= 0) & taken[rows]] = -1
        taken[rows[rows >= 0]] = True
        older[path] = rows
    return older, damaged


def unfinished_files(work: Path) -> list[Path]:
    """Return the shards and journals in the work folder of an interrupted run."""
    return sorted(path for path in work.glob("*/*") if path.suffix in (".h5", JOURNAL))


def contents(header: FeatureHeader, out: Path) -> Contents | None:
    """Return the recipe hash of existing features, and how they differ from those of a header."""
    if (present := _metadata(out)) is None:
        return None
    return str(present["recipe_hash"]), header.difference(present) or ""


def supersede(out: Path) -> None:
    """Mark existing finished features in `out` with `mark_superseded`."""
    if (present := _metadata(out)) is not None:
        mark_superseded(out, str(present["recipe_hash"]))


def _metadata(out: Path) -> dict[str, Any] | None:
    """Return the metadata of the features in a folder, from its index or a shard; else None."""
    if is_view(out):
        return None
    if (out / INDEX_FILE).is_file():
        try:
            return read_index(out).header.metadata()
        except ShardError:
            pass
    for path in sorted(out.glob("shard-*.h5")):
        try:
            return ShardFile(path).metadata()
        except (DamagedShard, OtherShard):
            continue
    return None
