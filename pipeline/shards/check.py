"""Checking one opened shard: each check gives all its faults, not only the first."""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pipeline.canonical import canonical_json, recipe_hash
from pipeline.shards.file import ShardFile
from pipeline.shards.format import (
    FORMAT_VERSION,
    OK,
    STATUS_NAMES,
    DamagedShard,
)
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import PlanError

SourceCrc = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it was written, and where."""

    file: str
    text: str
    row: int | None = None
    id: str | None = None

    def __str__(self) -> str:
        where = self.file
        if self.row is not None:
            where += f", row {self.row}"
        if self.id is not None:
            where += f", id {self.id!r}"
        return f"{where}: {self.text}"


def of_row(shard: ShardFile, row: int, text: str) -> Fault:
    """Return a fault of one row, with its id."""
    return Fault(shard.path.name, text, int(row), shard.ids[row])


def faults_of_facts(shard: ShardFile) -> Iterator[Fault]:
    """Compare what a shard says of itself with itself: recipe and hash, number of rows, status."""
    name, about = shard.path.name, shard.attributes
    if about.get("format_version") != FORMAT_VERSION:
        yield Fault(name, f"format version {about.get('format_version')!r}, not {FORMAT_VERSION}")
    try:
        recipe = json.loads(about["recipe"])
        named = recipe_hash(recipe, about["weights_sha256"])
        if canonical_json(recipe) != about["recipe"]:
            yield Fault(name, "its recipe is not canonical JSON")
        if named != about["recipe_hash"]:
            yield Fault(
                name,
                f"recipe_hash {about['recipe_hash']!r}, but its recipe and weights give {named!r}",
            )
    except (ValueError, TypeError) as error:
        yield Fault(name, f"its recipe is not JSON ({error})")
    if about.get("rows") != shard.rows:
        yield Fault(name, f"says {about.get('rows')!r} rows and holds {shard.rows}")
    for row in range(shard.rows):
        status, reason = int(shard.status[row]), shard.errors[row]
        if status not in STATUS_NAMES:
            yield of_row(shard, row, f"status {status} is none of {sorted(STATUS_NAMES)}")
        elif (status != OK) != bool(reason):
            yield of_row(shard, row, f"status {STATUS_NAMES[status]} with error text {reason!r}")


def faults_beside_index(shard: ShardFile, index: FeatureIndex, number: int) -> Iterator[Fault]:
    """Compare a shard with what its set's index says of shard `number`."""
    name, header, entry = shard.path.name, index.header, index.shards[number]
    wanted = header.attributes() | {"shard": number}
    wanted["created_by"] = entry.created_by or header.created_by
    with suppress(PlanError):  # the index's own fault
        wanted["shards"] = index.plan().shards_then(number)
    for key, value in wanted.items():
        if shard.attributes.get(key) != value:
            yield Fault(name, f"{key} is {shard.attributes.get(key)!r}, in the index {value!r}")
    failed = int((shard.status != OK).sum())
    for what, here, there in (
        ("row shape", shard.row_shape, header.row_shape),
        ("type", shard.dtype.name, header.dtype),
        ("rows", shard.rows, entry.rows),
        ("failed rows", failed, entry.failed_rows),
    ):
        if here != there:
            yield Fault(name, f"{what}: {here} in the file, {there} in the index")


def faults_of_rows(shard: ShardFile, count: Callable[[int], None]) -> tuple[list[Fault], str]:
    """Read all features; compare each row with its CRC-32, and NaN with its status.

    Parameters
    ----------
    count : called with the number of rows of each block that was read.

    Returns
    -------
    faults, and the content's SHA-256 (of zeros for rows that cannot be read).
    """
    faults: list[Fault] = []
    content = shard.content_hash()
    for rows in shard.spans():
        try:
            stored = shard.stored(rows)
        except DamagedShard:
            stored = np.zeros((len(rows), *shard.row_shape), shard.dtype)
            for position, row in enumerate(rows):
                try:
                    stored[position] = shard.stored(rows[position : position + 1])[0]
                except DamagedShard as error:
                    faults.append(of_row(shard, row, f"cannot be read ({error.__cause__})"))
        nan = np.isnan(stored.reshape(len(rows), -1)).any(axis=1)
        for position, row in enumerate(rows):
            if zlib.crc32(stored[position]) != shard.crc32[row]:
                faults.append(of_row(shard, row, "not what was written (CRC-32 differs)"))
            if nan[position] != (shard.status[row] != OK):
                faults.append(
                    of_row(shard, row, "holds NaN" if nan[position] else "failed, but no NaN")
                )
        content.update(stored.tobytes())
        count(len(rows))
    return faults, content.hexdigest()


def faults_of_sources(shard: ShardFile, source_crc: SourceCrc) -> tuple[list[Fault], int]:
    """Compare `source_crc32` with the sources as they are now.

    Parameters
    ----------
    source_crc : gives the CRC-32 of an id's source, or None where there is none.

    Returns
    -------
    faults, and the number of rows compared: those whose `source_crc32` is not 0.
    """
    faults = []
    known = np.flatnonzero(shard.source_crc32).tolist()
    for row in known:
        now = source_crc(shard.ids[row])
        if now is None:
            faults.append(of_row(shard, row, "its image file or caption is no longer there"))
        elif now != shard.source_crc32[row]:
            faults.append(of_row(shard, row, "its image or caption has changed since"))
    return faults, len(known)
