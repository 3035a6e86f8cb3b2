"""Making `index.json` again from the shards alone."""

import json
from pathlib import Path

from pipeline.shards.file import ShardFile
from pipeline.shards.format import FeatureHeader, ShardError
from pipeline.shards.index import FeatureIndex, index_of
from pipeline.shards.plan import PlanError, ShardPlan, default_rows_per_shard, plan_of
from pipeline.shards.probe import require_unbroken
from pipeline.shards.progress import Progress, silent


def rebuild_index(
    folder: Path,
    rows_per_shard: int | None = None,
    progress: Progress = silent,
) -> FeatureIndex:
    """Check every byte that has a checksum of all shards, and write their index.

    The index has the same bytes as the lost one, but where a set's last shards are a single one
    that was made with other rows per shard than the default: shards do not record that.

    Parameters
    ----------
    folder : of the shards; an `index.json` that is there is replaced.
    rows_per_shard : what a single last shard was planned with. Default: as the largest before it,
        else the default of `ShardBuild`, or the shard's rows if they are more.
    progress : called with rows done, rows in all, and 0.

    Raises
    ------
    OtherShard
        Shards of several sets; the field that differs is named.
    DamagedShard
        A shard is damaged.
    ShardError
        No shards, some are missing, or an id has two rows.
    """
    paths = sorted(folder.glob("shard-*.h5"))
    if not paths:
        raise ShardError(f"{folder} holds no shard-*.h5; name a folder of feature shards")
    require_unbroken(paths, features=True)
    shards = [ShardFile(path) for path in paths]
    header = _header(shards[0])
    for shard in shards:
        shard.require(header, shard.ids)
    plan = _plan(folder, shards, header, rows_per_shard)
    _require_unique_ids(shards)
    entries = []
    for number, shard in enumerate(shards):
        entry = shard.inspect(plan.span(number).start)
        entries.append((entry, str(shard.attributes.get("created_by", "unknown"))))
        progress(plan.span(number).stop, plan.rows, 0)
    index = index_of(header, plan.rows_per_shard, entries)
    index.write(folder)
    return index


def _header(first: ShardFile) -> FeatureHeader:
    about = first.attributes
    try:
        recipe = json.loads(about["recipe"])
        names = ("weights", "weights_sha256", "axes", "dataset", "created_by")
        facts = {name: str(about[name]) for name in names}
    except (ValueError, KeyError) as error:
        raise ShardError(f"{first.path}: its attributes are damaged ({error})") from error
    if not isinstance(recipe, dict):
        raise ShardError(f"{first.path}: its recipe is no JSON object")
    return FeatureHeader(recipe, row_shape=first.row_shape, dtype=first.dtype.name, **facts)


def _plan(
    folder: Path, shards: list[ShardFile], header: FeatureHeader, rows_per_shard: int | None
) -> ShardPlan:
    """Return the plan that gives all these shards, and check that none is missing."""
    together = [
        s for s in shards if s.attributes.get("shards") == shards[-1].attributes.get("shards")
    ]
    size = together[0].rows
    if len(together) == 1:
        default = default_rows_per_shard(header.row_bytes) if len(shards) == 1 else 1
        size = rows_per_shard or max(default, *(shard.rows for shard in shards))
    remedy = "copy all shards of one set here, and no others"
    try:
        plan = plan_of([(shard.path.name, shard.rows) for shard in shards], size)
    except PlanError as error:
        raise ShardError(f"{folder}: {error}; {remedy}") from error
    for number, shard in enumerate(shards):
        says = tuple(shard.attributes.get(name) for name in ("shard", "shards"))
        if says != (number, plan.shards_then(number)):
            raise ShardError(
                f"{shard.path} says that it is shard {says[0]} (from 0) of {says[1]}, and it "
                f"stands where {number} of {plan.shards_then(number)} belongs; {remedy}"
            )
    return plan


def _require_unique_ids(shards: list[ShardFile]) -> None:
    seen: dict[str, ShardFile] = {}
    for shard in shards:
        for row, one in enumerate(shard.ids):
            if one in seen:
                raise ShardError(
                    f"{shard.path}, row {row}: id {one!r} has a row before, in {seen[one].path}"
                )
            seen[one] = shard
