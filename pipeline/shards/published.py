"""What an output folder already holds, and how the rows that are asked for fit to it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.canonical import sha256_of_json
from pipeline.shards.file import ShardFile, difference
from pipeline.shards.format import DamagedShard, FeatureHeader, OtherShard, ShardError
from pipeline.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.shards.plan import PlanError, ShardPlan, plan_rows


@dataclass(frozen=True)
class Layout:
    """How the rows lie, or will lie, in an output folder.

    Attributes
    ----------
    plan : of all shards, those that are there and those to come.
    ids : all row ids in the plan's order.
    compress : whether the shards are compressed: all are, or none.
    index : the output's, if it has a sound one.
    damaged : why it has none though there is a file; at most one text.
    """

    plan: ShardPlan
    ids: list[str]
    compress: bool
    index: FeatureIndex | None
    damaged: list[str]

    def fingerprint(self, header: FeatureHeader, inputs: object) -> str:
        """Return 16 hex digits that name the work: these rows, so laid out, of these inputs."""
        files = [self.plan.file_name(shard) for shard in range(self.plan.shards)]
        features = [header.attributes(), header.dtype, self.ids, inputs]
        return sha256_of_json([features, files, self.plan.rows_per_shard, self.compress])[:16]


def repeated(ids: Iterable[str]) -> list[str]:
    """Return the ids that occur more than once, in the order of their first occurrence."""
    return [one for one, count in Counter(ids).items() if count > 1]


def lay_out(
    out: Path,
    header: FeatureHeader,
    ids: Sequence[str],
    rows_per_shard: int | None,
    compress: bool,
    add: bool,
) -> Layout:
    """Fit the asked rows to what the output holds; see `ShardBuild` for the parameters.

    Raises
    ------
    OtherShard
        The output holds another feature set, or the same with other rows.
    DamagedShard
        Rows shall be added to a set of which a shard cannot be read.
    """
    shards = {path.name: _ids_of(path) for path in sorted(out.glob("shard-*.h5"))}
    layouts = [found[1] for found in shards.values() if found]
    compress = layouts[0] if layouts else compress
    index, damaged = _index(out)
    if index is None:
        plan, order = plan_rows(len(ids), rows_per_shard, header.row_bytes), list(ids)
    else:
        _require_same_features(out, index.header, header)
        plan, order = _fit(out, index, shards, ids, rows_per_shard, add)
    names = {plan.file_name(shard) for shard in range(plan.shards)}
    if strangers := sorted(shards.keys() - names):
        raise OtherShard(
            f"{out} holds {strangers[0]}, which is none of the {len(names)} shards of "
            f"{plan.rows_per_shard} rows asked for, and no sound {INDEX_FILE} names it; it was "
            "left by an unfinished run on other rows, or the index was lost: finish that run, make "
            "the index again, or give another output folder"
        )
    return Layout(plan, order, compress, index, damaged)


def _ids_of(path: Path) -> tuple[list[str], bool] | None:
    """Return a shard's ids and whether it is compressed; None if it is damaged."""
    try:
        shard = ShardFile(path)
    except DamagedShard:
        return None
    return shard.ids, shard.compressed


def _index(out: Path) -> tuple[FeatureIndex | None, list[str]]:
    if not (out / INDEX_FILE).is_file():
        return None, []
    try:
        index = read_index(out)
        index.plan()
    except (ShardError, PlanError) as error:
        return None, [str(error)]
    return index, []


def _require_same_features(out: Path, found: FeatureHeader, wanted: FeatureHeader) -> None:
    theirs, ours = (
        {**h.attributes(), "row_shape": h.row_shape, "dtype": h.dtype} for h in (found, wanted)
    )
    for name in ours:
        if name not in ("created_by", "recipe_hash") and theirs[name] != ours[name]:
            raise OtherShard(f"{difference(out, name, theirs[name], ours[name])}{_remedy(out)}")


def _remedy(out: Path) -> str:
    return f"; give another output folder, or remove {out} if those features may go"


def _fit(
    out: Path,
    index: FeatureIndex,
    shards: dict[str, tuple[list[str], bool] | None],
    ids: Sequence[str],
    rows_per_shard: int | None,
    add: bool,
) -> tuple[ShardPlan, list[str]]:
    """Return the plan and the order of a finished set's rows, with those to be added last."""
    plan = index.plan()
    found = [shards.get(entry.file) for entry in index.shards]
    held = {one for shard in found if shard for one in shard[0]}
    holds = f"{out} holds {index.rows} rows in shards of {index.rows_per_shard}"
    asked = set(ids)
    if other := [one for shard in found if shard for one in shard[0] if one not in asked]:
        raise OtherShard(
            f"{holds}; {len(other)} of them are not among the {len(ids)} asked for, first "
            f"{other[:5]}{_remedy(out)}"
        )
    rest = [one for one in ids if one not in held]
    order: list[str] = []
    for entry, shard in zip(index.shards, found, strict=True):
        # The ids of a shard that cannot be read are those that no other shard has.
        order += shard[0] if shard else rest[: entry.rows]
        rest = rest if shard else rest[entry.rows :]
    if len(order) != index.rows or repeated(order):
        raise OtherShard(f"{holds}, and not the {len(ids)} asked for{_remedy(out)}")
    if rest and not add:
        raise OtherShard(
            f"{holds}; {len(rest)} of the {len(ids)} rows asked for are not among them, first "
            f"{rest[:5]}; ask to add them (--add, or add=True), or give another output folder"
        )
    if rest and None in found:
        raise DamagedShard(
            f"{out / index.shards[found.index(None)].file} is missing or damaged; have it made "
            f"again by asking for the {index.rows} rows of the set alone, then add others"
        )
    if rest:
        size = index.rows_per_shard if rows_per_shard is None else rows_per_shard
        return ShardPlan(len(ids), size, plan), order + rest
    if not add and not plan.older:
        if rows_per_shard not in (None, index.rows_per_shard):
            raise OtherShard(f"{holds}, not in shards of {rows_per_shard}{_remedy(out)}")
        if order != list(ids):
            raise OtherShard(f"{holds} in another order than that asked for{_remedy(out)}")
    return plan, order
