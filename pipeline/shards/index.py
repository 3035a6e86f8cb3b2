"""`index.json`: the attributes of a feature set once, and a line for each of its shards."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.canonical import write_json
from pipeline.shards.format import FORMAT, FORMAT_VERSION, FeatureHeader, ShardEntry, ShardError
from pipeline.shards.plan import ShardPlan, plan_of

INDEX_FILE = "index.json"


@dataclass(frozen=True)
class FeatureIndex:
    """A finished feature set.

    Attributes
    ----------
    header : what all shards have in common; its `created_by` is the first shard's.
    rows_per_shard : rows of every shard but the last, of those that were added last.
    shards : one entry a shard, in row order.
    """

    header: FeatureHeader
    rows_per_shard: int
    shards: tuple[ShardEntry, ...]

    @property
    def rows(self) -> int:
        """Number of rows in all shards."""
        return sum(s.rows for s in self.shards)

    @property
    def failed_rows(self) -> int:
        """Number of rows with a status other than 0."""
        return sum(s.failed_rows for s in self.shards)

    def plan(self) -> ShardPlan:
        """Return the plan that gives these shards.

        Raises
        ------
        PlanError
            None does: the index was altered.
        """
        return plan_of([(s.file, s.rows) for s in self.shards], self.rows_per_shard)

    def write(self, folder: Path) -> None:
        """Write `index.json`, the done record of the whole set, into `folder`."""
        header = self.header
        write_json(
            folder / INDEX_FILE,
            {
                **header.attributes(),
                "recipe": header.recipe,
                "row_shape": list(header.row_shape),
                "dtype": header.dtype,
                "rows": self.rows,
                "failed_rows": self.failed_rows,
                "rows_per_shard": self.rows_per_shard,
                "shards": [_line(s) for s in self.shards],
            },
        )


def index_of(
    header: FeatureHeader, rows_per_shard: int, shards: Iterable[tuple[ShardEntry, str]]
) -> FeatureIndex:
    """Return the index of shards that may have been made by several versions of the software.

    Parameters
    ----------
    header : what the shards have in common; its `created_by` does not count.
    rows_per_shard : see `FeatureIndex`.
    shards : each shard's entry and its own `created_by`, in row order. That of the first stands
        for the set, and the entry of a shard that differs from it says so.
    """
    shards = list(shards)
    created_by = shards[0][1]
    return FeatureIndex(
        replace(header, created_by=created_by),
        rows_per_shard,
        tuple(
            replace(entry, created_by=None if own == created_by else own) for entry, own in shards
        ),
    )


def read_index(folder: Path) -> FeatureIndex:
    """Read the `index.json` of a feature folder.

    Raises
    ------
    ShardError
        There is none, it is damaged or of another format, or it names files outside its folder.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        raise ShardError(
            f"{path} not found: {folder} is no finished feature folder; run `pipeline extract` or "
            "`pipeline text` (again: it goes on where it stopped)"
        )
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (facts["format"], facts["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(
                f"format {facts['format']!r} version {facts['format_version']!r}; this software "
                f"reads {FORMAT!r} version {FORMAT_VERSION}"
            )
        names = ("recipe", "weights", "weights_sha256", "axes", "dataset", "dtype", "created_by")
        header = FeatureHeader(
            row_shape=tuple(facts["row_shape"]), **{name: facts[name] for name in names}
        )
        if header.recipe_hash != facts["recipe_hash"]:
            raise ValueError("its recipe is not the one that its recipe_hash names")
        shards = tuple(ShardEntry(**entry) for entry in facts["shards"])
        for entry in shards:
            if Path(entry.file).name != entry.file:
                raise ValueError(f"file {entry.file!r} is not a plain file name")
        return FeatureIndex(header, facts["rows_per_shard"], shards)
    except (KeyError, TypeError, ValueError) as error:
        raise ShardError(f"{path} is damaged or of another kind ({error})") from error


def _line(entry: ShardEntry) -> dict[str, Any]:
    facts = asdict(entry)
    if entry.created_by is None:
        del facts["created_by"]
    return facts
