"""Rows of earlier sets that an update can copy, and the valid shards that hold them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.locking import work_folders
from pipeline.store.current.replace import is_superseded, mark_superseded, move_aside, move_back
from pipeline.store.packed import TextIndex
from pipeline.store.shards.format import DamagedShard, FeatureHeader, OtherShard, ShardError
from pipeline.store.shards.index import INDEX_FILE, read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.shards.side_by_side import is_view


@dataclass(frozen=True)
class OlderRows:
    """A valid shard of the same features with another list of rows."""

    path: Path
    rows: RowNumbers
    """(n,) row numbers in the updated set; -1: not in the set, or copied from another shard."""
    status: npt.NDArray[np.uint8]
    source_crc32: npt.NDArray[np.uint32]


def older_rows(
    paths: Iterable[Path],
    header: FeatureHeader,
    ids: Sequence[str],
    broken: Mapping[Path, str],  # must not be opened, and why
    vouched: Iterable[Path] = (),  # bytes already verified
) -> tuple[list[OlderRows], list[str]]:
    """Return the shards with rows of an updated set, and the errors of corrupt ones."""
    shards: list[OlderRows] = []
    damaged: list[str] = []
    taken = np.zeros(len(ids), bool)
    verified, index = {*vouched}, TextIndex(ids)
    for path in paths:
        if path in broken:
            damaged.append(f"{path} is {broken[path]}")
            continue
        try:
            shard = ShardFile(path)
            if header.difference(shard.metadata()) is not None:
                continue
            # Only the file's SHA-256 or this check of its rows proves that it is intact.
            if path not in verified:
                shard.inspect(0)
        except DamagedShard as error:
            damaged.append(str(error))
            continue
        rows = index.rows_of(shard.ids, len(shard.ids))
        # The first shard that has a row provides it.
        rows[(rows >= 0) & taken[rows]] = -1
        taken[rows[rows >= 0]] = True
        shards.append(OlderRows(path, rows, shard.status, shard.source_crc32))
    return shards, damaged


def unfinished_shards(out: Path, work: Path) -> Iterator[Path]:
    """Yield the shards and pieces of interrupted runs on an output with other inputs or rows."""
    for folder in work_folders(out):
        if folder != work:
            yield from sorted(folder.glob("*/*.h5"))


def make_way(out: Path, header: FeatureHeader) -> list[str]:
    """Move other features in `out` aside, and these back if they were; return log lines."""
    notes: list[str] = []
    present = _metadata(out)
    if present is not None and (unlike := header.difference(present)) is not None:
        key = str(present["recipe_hash"])
        # Superseded features stay until their successor is finished: a kill must not leave none.
        if is_superseded(out, key):
            notes.append(f"{out} {unlike}: all rows are recomputed and then replace it")
        else:
            notes.append(f"{out} {unlike}: moved aside to {move_aside(out, key)}")
    if not out.exists() and (
        aside := move_back(out, header.recipe_hash, lambda folder: _holds(folder, header))
    ):
        notes.append(f"{aside} holds the requested features: moved back to {out}")
    return notes


def supersede(out: Path) -> None:
    """Mark existing finished features in `out` with `mark_superseded`."""
    if (present := _metadata(out)) is not None:
        mark_superseded(out, str(present["recipe_hash"]))


def _holds(folder: Path, header: FeatureHeader) -> bool:
    metadata = _metadata(folder)
    return metadata is not None and header.difference(metadata) is None


def _metadata(out: Path) -> Mapping[str, Any] | None:
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
