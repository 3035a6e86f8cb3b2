"""Existing contents of an output folder, and how the requested rows relate to them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.store.hashing import sha256_of_file, sha256_of_json, sha256_of_texts
from pipeline.store.packed import PackedTexts, TextIndex, repeated_texts
from pipeline.store.shards.format import (
    VERSIONS,
    DamagedShard,
    FeatureHeader,
    OtherShard,
    ShardError,
)
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.store.shards.plan import ShardPlan
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.sandbox import find_crashing_files
from pipeline.store.shards.side_by_side import is_view


@dataclass(frozen=True)
class OutputPlan:
    """Existing and planned shards of an output folder."""

    plan: ShardPlan
    ids: PackedTexts  # in the order of the plan
    compress: bool  # all shards or none
    headers: list[FeatureHeader]  # of the version of the shards, or of all while there are none
    index: FeatureIndex | None  # of the output, if valid
    damaged: list[str]  # why an existing index is invalid; at most one message
    broken: dict[Path, str]  # shards that hang or crash HDF5, with a description
    replaces: bool  # the output holds other rows, which a new set replaces
    vouched: list[Path]  # shards whose SHA-256 matches the index

    def fingerprint(self, header: FeatureHeader, inputs: object) -> str:
        """Return 16 hex digits that identify the work: rows, layout and inputs."""
        files = [self.plan.file_name(shard) for shard in range(self.plan.shards)]
        features = [header.attributes(), header.dtype, sha256_of_texts(self.ids), inputs]
        return sha256_of_json([features, files, self.plan.rows_per_shard, self.compress])[:16]


class _Shard(NamedTuple):
    ids: Sequence[str]
    compressed: bool
    format_version: int


def fit_to_existing(
    out: Path,
    header: FeatureHeader,
    ids: PackedTexts,
    fresh: ShardPlan,
    rows_per_shard: int | None,
    compress: bool,
    add: bool | None,
    update: bool,
) -> OutputPlan:
    """Return a plan of the requested rows that is compatible with the existing output."""
    if is_view(out):
        raise OtherShard(f"{out} is a view of other feature sets{_remedy(out)}")
    index, damaged = _index(out)
    paths = sorted(out.glob("shard-*.h5"))
    vouched = [path for path in paths if _vouched(path, index)]
    # A corrupt file can crash HDF5 and with it this process, so it is first opened in another one.
    # A file with the SHA-256 of the index is the one that was written.
    broken = find_crashing_files([path for path in paths if path not in vouched], features=True)
    shards = {path.name: None if path in broken else _shard(path) for path in paths}
    readable = [shard for shard in shards.values() if shard]
    compress = readable[0].compressed if readable else compress
    found = [index.header.format_version] if index else [s.format_version for s in readable[:1]]
    versions = found or dict.fromkeys((header.format_version, *VERSIONS))
    headers = [replace(header, format_version=version) for version in versions]
    header = headers[0]
    replaces = False
    try:
        plan, order = _plan_and_order(out, header, index, shards, ids, fresh, rows_per_shard, add)
        if update and index is None:
            _require_same(out, header, plan, shards, ids)
    except (OtherShard, DamagedShard):
        # No other `ShardError`: a file that the system refuses to read must not be replaced.
        if not update:
            raise
        plan, order, replaces = fresh, ids, True
        like = index is not None and index.header.row_bytes == header.row_bytes
        if index is not None and like and rows_per_shard is None:
            plan = ShardPlan.equal(fresh.rows, index.rows_per_shard)
        index = None
    return OutputPlan(plan, order, compress, headers, index, damaged, broken, replaces, vouched)


def _plan_and_order(
    out: Path,
    header: FeatureHeader,
    index: FeatureIndex | None,
    shards: dict[str, _Shard | None],
    ids: PackedTexts,
    fresh: ShardPlan,
    rows_per_shard: int | None,
    add: bool | None,
) -> tuple[ShardPlan, PackedTexts]:
    """Return the plan and the row order of an output that is not replaced."""
    if index is None:
        plan, order = fresh, ids
    else:
        if unlike := header.difference(index.header.metadata()):
            raise OtherShard(f"{out} {unlike}{_remedy(out, add is not None)}")
        plan, order = _fit(out, index, shards, ids, rows_per_shard, add)
    names = {plan.file_name(shard) for shard in range(plan.shards)}
    if strays := sorted(shards.keys() - names):
        raise OtherShard(
            f"{out} holds {strays[0]}, which is not one of the {len(names)} requested shards of "
            f"{plan.rows_per_shard} rows and not listed in a valid {INDEX_FILE}. It is left over "
            "from an unfinished run with other rows, or the index was lost: finish that run, "
            "rebuild the index, or choose another output folder"
        )
    return plan, order


def _require_same(
    out: Path,
    header: FeatureHeader,
    plan: ShardPlan,
    shards: dict[str, _Shard | None],
    ids: Sequence[str],
) -> None:
    """Raise `OtherShard` if a valid shard of a set without an index holds other rows."""
    for shard in range(plan.shards):
        if shards.get(name := plan.file_name(shard)):
            span = plan.span(shard)
            ShardFile(out / name).require(header, ids[span.start : span.stop])


def _vouched(path: Path, index: FeatureIndex | None) -> bool:
    """Return whether the SHA-256 of a shard is in the index."""
    recorded = {s.sha256 for s in index.shards if s.file == path.name} if index else set()
    # An unreadable file is not vouched for: opening it later raises the right error.
    return bool(recorded) and os.access(path, os.R_OK) and sha256_of_file(path) in recorded


def _shard(path: Path) -> _Shard | None:
    """Return what a plan depends on in a shard; None if it is corrupt."""
    try:
        shard = ShardFile(path)
    except DamagedShard:
        return None
    return _Shard(shard.ids, shard.compressed, int(shard.attributes.get("format_version", 1)))


def _index(out: Path) -> tuple[FeatureIndex | None, list[str]]:
    if not (out / INDEX_FILE).is_file():
        return None, []
    try:
        index = read_index(out)
        index.plan()
    except ShardError as error:
        return None, [str(error)]
    return index, []


def _remedy(out: Path, update: bool = False) -> str:
    if update:
        return (
            "; `update=True` keeps the rows that are up to date and recomputes the others, or "
            "choose another output folder"
        )
    return f"; choose another output folder, or delete {out} if it is obsolete"


def _fit(
    out: Path,
    index: FeatureIndex,
    shards: dict[str, _Shard | None],
    ids: PackedTexts,
    rows_per_shard: int | None,
    add: bool | None,
) -> tuple[ShardPlan, PackedTexts]:
    """Return plan and row order of a finished set, with the rows to add at the end."""
    plan = index.plan()
    files = [shards.get(entry.file) for entry in index.shards]
    holds = f"{out} holds {index.rows} rows"
    stored = PackedTexts(row_id for shard in files if shard for row_id in shard.ids)
    rest: list[str] = []
    order = stored
    remedy = _remedy(out, add is not None)
    if stored != ids:
        positions = TextIndex(ids).rows_of(stored, len(stored))
        if unknown := [stored[row] for row in np.flatnonzero(positions < 0).tolist()]:
            raise OtherShard(
                f"{holds}; {len(unknown)} of them are not among the {len(ids)} requested, first "
                f"{unknown[:5]}{remedy}"
            )
        there = np.zeros(len(ids), bool)
        there[positions] = True
        rest = [ids[row] for row in np.flatnonzero(~there).tolist()]
        placed: list[str] = []
        for entry, shard in zip(index.shards, files, strict=True):
            # An unreadable shard has the ids that no other shard has.
            placed += shard.ids if shard else rest[: entry.rows]
            rest = rest if shard else rest[entry.rows :]
        order = PackedTexts(placed)
    if len(order) != index.rows or repeated_texts(order):
        raise OtherShard(f"{holds}, not the {len(ids)} requested{remedy}")
    if rest and not add:
        remedies = ["choose another output folder"]
        if add is not None:
            remedies[:0] = ["add them (`add=True`)", "update the set (`update=True`)"]
        raise OtherShard(
            f"{holds}; {len(rest)} of the {len(ids)} requested rows are not among them, first "
            f"{rest[:5]}; {', or '.join(remedies)}"
        )
    if rest and None in files:
        raise DamagedShard(
            f"{out / index.shards[files.index(None)].file} is missing or corrupt; recompute it by "
            f"requesting only the {index.rows} rows of the set, then add others"
        )
    if rest:
        size = index.rows_per_shard if rows_per_shard is None else rows_per_shard
        return ShardPlan.equal(len(ids), size, plan), PackedTexts([*order, *rest])
    if not add and not plan.extended:
        if rows_per_shard not in (None, index.rows_per_shard):
            raise OtherShard(
                f"{holds} in shards of {index.rows_per_shard}, not {rows_per_shard}{remedy}"
            )
        if order != ids:
            raise OtherShard(f"{holds} in another order than requested{remedy}")
    return plan, order
