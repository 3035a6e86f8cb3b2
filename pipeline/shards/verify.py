"""Checking a folder of shards against its index, or a single shard: every fault is listed."""

import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.canonical import sha256_of_file
from pipeline.datasets.manifest import Manifest
from pipeline.shards.check import (
    Fault,
    SourceCrc,
    faults_beside_index,
    faults_of_facts,
    faults_of_rows,
    faults_of_sources,
    of_row,
)
from pipeline.shards.file import ShardFile
from pipeline.shards.format import DamagedShard, ShardError
from pipeline.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.shards.plan import PlanError
from pipeline.shards.probe import breaking
from pipeline.shards.progress import Progress, silent


@dataclass
class Verification:
    """What was checked, and what was found.

    Attributes
    ----------
    faults : all of them. rows : how many were looked at.
    indexed : whether an index vouches for every byte; without one a shard has only the
        checksums of its rows.
    sources : rows whose source was compared.
    """

    faults: list[Fault] = field(default_factory=list)
    rows: int = 0
    indexed: bool = False
    sources: int = 0


def verify(
    path: Path,
    quick: bool = False,
    source_crc: SourceCrc | None = None,
    progress: Progress = silent,
) -> Verification:
    """Check a feature folder, or one shard, and list every fault.

    Parameters
    ----------
    path : a folder of shards, or one shard; an index beside the shard is used if it names it.
    quick : structure, ids, counts and sizes only: features and checksums are not read.
    source_crc : see `pipeline.shards.check.faults_of_sources` and `source_crc_of`.
    progress : called with rows done, rows in all, and faults found.

    Raises
    ------
    ShardError
        There is nothing at `path`, or the system will not let a file be read.
    """
    if not path.exists():
        raise ShardError(f"{path} not found; name a folder of shards, or one shard")
    found = Verification()
    index = _index(path if path.is_dir() else path.parent, found.faults)
    named = {entry.file: number for number, entry in enumerate(index.shards)} if index else {}
    if path.is_dir():
        found.faults += _faults_of_folder(path, named)
        files = [path / name for name in named] or sorted(path.glob("shard-*.h5"))
    else:
        files, found.faults = [path], []
    total = index.rows if index and path.is_dir() else 0
    found.indexed = all(file.name in named for file in files)
    places: dict[str, Fault] = {}

    def count(rows: int) -> None:
        found.rows += rows
        progress(found.rows, max(total, found.rows), len(found.faults))

    unvouched = [file for file in files if (quick or file.name not in named) and file.is_file()]
    broken = breaking(unvouched, features=not quick)
    for file in files:
        number = named.get(file.name) if index else None
        entry = index.shards[number] if index and number is not None else None
        if not file.is_file():
            found.faults.append(Fault(file.name, "named in the index but not there; copy it again"))
            continue
        if entry and not quick and sha256_of_file(file) != entry.sha256:
            # It covers the bytes that no row covers too.
            found.faults.append(Fault(file.name, "SHA-256 of the file differs; copy it again"))
            broken |= breaking([file], features=True)
        if file in broken:
            found.faults.append(Fault(file.name, broken[file]))
            continue
        try:
            shard = ShardFile(file)
        except DamagedShard as error:
            found.faults.append(Fault(file.name, _without_path(error, file)))
            continue
        found.faults += faults_of_facts(shard)
        found.faults += _repeated_ids(shard, places)
        if index and number is not None:
            found.faults += faults_beside_index(shard, index, number)
        if source_crc:
            faults, compared = faults_of_sources(shard, source_crc)
            found.faults += faults
            found.sources += compared
        if quick:
            count(shard.rows)
            continue
        faults, content = faults_of_rows(shard, count)
        found.faults += faults
        if entry and content != entry.content_sha256:
            found.faults.append(Fault(file.name, "SHA-256 of the content differs"))
    return found


def source_crc_of(dataset: Manifest) -> SourceCrc:
    """Return a function that gives the CRC-32 of an id's image file or caption text as it is now.

    It gives None for ids that the dataset does not have and for images that are gone.
    """
    files = {entry.id: dataset.image_root / entry.file for entry in dataset.entries}
    captions = {
        one: text
        for entry in dataset.entries
        for one, text in zip(entry.caption_ids, entry.captions, strict=True)
    }

    def crc(one: str) -> int | None:
        if one in files:
            return zlib.crc32(files[one].read_bytes()) if files[one].is_file() else None
        return zlib.crc32(captions[one].encode()) if one in captions else None

    return crc


def _index(folder: Path, faults: list[Fault]) -> FeatureIndex | None:
    """Return the index if it can be used; add its faults."""
    path = folder / INDEX_FILE
    remedy = "`pipeline shards index` makes it again from sound shards"
    if not path.is_file():
        faults.append(Fault(INDEX_FILE, f"not there: unfinished, or lost; {remedy}"))
        return None
    try:
        index = read_index(folder)
    except ShardError as error:
        faults.append(Fault(INDEX_FILE, f"{_without_path(error, path)}; {remedy}"))
        return None
    try:
        index.plan()
    except PlanError as error:
        faults.append(Fault(INDEX_FILE, f"{error}; {remedy}"))
    return index


def _faults_of_folder(folder: Path, named: Container[str]) -> Iterator[Fault]:
    """Find what a feature folder should not hold."""
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".part"):
            yield Fault(path.name, "left over by a run that was stopped; it may be removed")
        elif named and path.suffix == ".h5" and path.name not in named:
            yield Fault(path.name, "a shard that the index does not name")
    if not any(folder.glob("shard-*.h5")):
        yield Fault(folder.name, "no shard in this folder")


def _repeated_ids(shard: ShardFile, places: dict[str, Fault]) -> Iterator[Fault]:
    """Find ids that have a row before; `places` remembers all ids seen."""
    for row, one in enumerate(shard.ids):
        here = of_row(shard, row, "")
        if one in places:
            first = places[one]
            yield of_row(shard, row, f"this id has a row before, in {first.file}, row {first.row}")
        places.setdefault(one, here)


def _without_path(error: ShardError, path: Path) -> str:
    return str(error).removeprefix(str(path)).lstrip(": ")
