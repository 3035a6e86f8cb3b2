"""Publishing: finished shards move to the output, and then the index says that they are there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.shards.format import DamagedShard, FeatureHeader, OtherShard, ShardEntry
from pipeline.shards.index import FeatureIndex, index_of
from pipeline.shards.reader import ShardFile


@dataclass(frozen=True)
class FinishedShard:
    """A sound shard: where it lies, its line of the index and the software that made it."""

    path: Path
    entry: ShardEntry
    created_by: str


def finished_shard(
    path: Path, header: FeatureHeader, ids: Sequence[str], first_row: int
) -> FinishedShard:
    """Check every byte of a shard, and that it holds just these rows of these features.

    Raises
    ------
    DamagedShard, OtherShard
    """
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
    """Return the first sound shard of that name, and what is wrong with damaged ones before it.

    Those that are known to be `broken` are not opened.

    Raises
    ------
    OtherShard
        One holds other features or other rows.
    """
    damaged: list[str] = []
    for path in (folder / name for folder in folders):
        if path in broken:
            damaged.append(f"{path} is {broken[path]}")
            continue
        try:
            if path.is_file():
                return finished_shard(path, header, ids, first_row), damaged
        except DamagedShard as error:
            damaged.append(str(error))
        except OtherShard as error:
            raise OtherShard(
                f"{error}; give another output folder, or remove {path} if it may go"
            ) from error
    return None, damaged


def publish(
    out: Path,
    header: FeatureHeader,
    rows_per_shard: int,
    shards: Sequence[FinishedShard],
    before: FeatureIndex | None,
) -> FeatureIndex:
    """Move those shards to the output that are not there yet, then write its index.

    A run killed in between leaves an index that does not know the moved shards, which the next
    run inspects and finds sound. Nothing is touched where nothing changes.

    Parameters
    ----------
    out : the output folder.
    header, rows_per_shard : see `FeatureIndex`.
    shards : all, in row order.
    before : the output's index, if it has one.
    """
    # What is said of a network's training is the one thing that may differ.
    index = index_of(
        replace(before.header, trained_on=header.trained_on) if before else header,
        rows_per_shard,
        [(shard.entry, shard.created_by) for shard in shards],
    )
    moving = [shard for shard in shards if shard.path.parent != out]
    if moving or index != before:
        out.mkdir(parents=True, exist_ok=True)
        for shard in moving:
            shard.path.replace(out / shard.entry.file)
        index.write(out)
    return index
