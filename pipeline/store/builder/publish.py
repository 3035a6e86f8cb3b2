"""Publishing: move finished shards to the output, then write the index that lists them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.store.shards.format import DamagedShard, FeatureHeader, OtherShard, ShardEntry
from pipeline.store.shards.index import FeatureIndex, index_of
from pipeline.store.shards.reader import ShardFile


@dataclass(frozen=True)
class FinishedShard:
    """A verified shard."""

    path: Path
    entry: ShardEntry
    created_by: str  # software and versions that wrote it


def finished_shard(
    path: Path, header: FeatureHeader, ids: Sequence[str], first_row: int
) -> FinishedShard:
    """Verify every byte of a shard, and that it has exactly these rows and this recipe."""
    file = ShardFile(path)
    file.require(header, ids)
    created_by = str(file.attributes.get("created_by", "unknown"))
    return FinishedShard(path, file.inspect(first_row), created_by)


def find_shard(
    folders: Iterable[Path],
    name: str,
    header: FeatureHeader,
    ids: Sequence[str],
    first_row: int,
    broken: Mapping[Path, str],
) -> tuple[FinishedShard | None, list[str]]:
    """Return the first valid shard of a name, and the errors of corrupt ones before it."""
    damaged: list[str] = []
    # A file that HDF5 crashes on is not opened here.
    for path in (folder / name for folder in folders):
        if path in broken:
            damaged.append(f"{path} is {broken[path]}")
            continue
        try:
            if path.is_file():
                return finished_shard(path, header, ids, first_row), damaged
        except DamagedShard as error:
            damaged.append(str(error))
        # Refused, not recomputed: it may be another result, which took days.
        except OtherShard as error:
            raise OtherShard(
                f"{error}; choose another output folder, or delete {path} if it is obsolete"
            ) from error
    return None, damaged


def publish(
    out: Path,
    header: FeatureHeader,
    rows_per_shard: int,
    shards: Sequence[FinishedShard],
    before: FeatureIndex | None,
) -> FeatureIndex:
    """Move the shards that the output lacks there, then write its index."""
    # Only `trained_on` may differ.
    index = index_of(
        replace(before.header, trained_on=header.trained_on) if before else header,
        rows_per_shard,
        [(shard.entry, shard.created_by) for shard in shards],
    )
    moving = [shard for shard in shards if shard.path.parent != out]
    if moving or index != before:
        out.mkdir(parents=True, exist_ok=True)
        # Renames: each shard is in one of the two folders at any time, never partially. After a
        # kill in between, the old index, if any, does not list the moved shards; the next run
        # verifies and reuses them.
        for shard in moving:
            shard.path.replace(out / shard.entry.file)
        # Last, since it marks the set as finished. Its writer flushes the folder, and with it the
        # renames above.
        index.write(out)
    return index
