"""`index.json`: the attributes of a feature set once, and a line for each of its shards."""

import json
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.canonical import canonical_json, write_json
from pipeline.shards.format import FORMAT, FORMAT_VERSION, FeatureHeader, ShardEntry, ShardError
from pipeline.shards.plan import ShardPlan, plan_of
from pipeline.shards.write import explained

INDEX_FILE = "index.json"
_FILE = re.compile(r"shard-[0-9]+-of-[0-9]+\.h5")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        """Write `index.json`, the done record of the whole set, into `folder`.

        Raises
        ------
        ShardError
            It cannot be written, as on a full disk.
        """
        header, path = self.header, folder / INDEX_FILE
        facts = {
            **header.attributes(),
            "recipe": header.recipe,
            "row_shape": list(header.row_shape),
            "dtype": header.dtype,
            "rows": self.rows,
            "failed_rows": self.failed_rows,
            "rows_per_shard": self.rows_per_shard,
            "shards": [_line(s) for s in self.shards],
        }
        with explained(path, len(canonical_json(facts))):
            write_json(path, facts)


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
        There is none, it is damaged or of another format, or its numbers contradict each other.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        raise ShardError(
            f"{path} not found: {folder} is no finished feature folder; `pipeline extract` or "
            "`pipeline text` makes one (run again, it goes on where it stopped)"
        )
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (facts["format"], facts["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(
                f"format {facts['format']!r} version {facts['format_version']!r}; this software "
                f"reads {FORMAT!r} version {FORMAT_VERSION}"
            )
        _require_types(facts)
        names = ("recipe", "weights", "weights_sha256", "axes", "dataset", "dtype", "created_by")
        header = FeatureHeader(
            row_shape=tuple(facts["row_shape"]), **{name: facts[name] for name in names}
        )
        if header.recipe_hash != facts["recipe_hash"]:
            raise ValueError("its recipe is not the one that its recipe_hash names")
        shards = tuple(ShardEntry(**entry) for entry in facts["shards"])
        index = FeatureIndex(header, facts["rows_per_shard"], shards)
        _require_sums(index, facts)
        return index
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ShardError(f"{path} is damaged or of another kind ({error})") from error


def _require_types(facts: dict[str, Any]) -> None:
    """Raise ValueError, or what looking at other kinds of JSON raises, unless types are right."""

    def require(sound: Callable[[Any], bool], expected: str, about: Any, *names: str) -> None:
        for name in names:
            if not sound(about[name]):
                raise ValueError(f"{name} is {reprlib.repr(about[name])}, not {expected}")

    texts = ("weights", "axes", "dataset", "created_by")
    require(lambda one: isinstance(one, str), "text", facts, *texts)
    require(lambda one: isinstance(one, dict), "an object", facts, "recipe")
    require(_is_sha256, "64 hex digits", facts, "weights_sha256")
    require(lambda one: one in ("float32", "float16"), "float32 or float16", facts, "dtype")
    require(_is_count, "a number from 1", facts, "rows_per_shard")
    require(_is_shape, "a list of numbers from 1", facts, "row_shape")
    require(lambda one: isinstance(one, list) and one != [], "a list of shards", facts, "shards")
    for entry in facts["shards"]:
        require(_is_file, "the name of a shard", entry, "file")
        require(_is_sha256, "64 hex digits", entry, "sha256", "content_sha256")
        require(_is_count, "a number from 1", entry, "rows")
        require(lambda one: type(one) is int and one >= 0, "a number", entry, "failed_rows")
        require(lambda one: isinstance(one, str), "text", {"created_by": "", **entry}, "created_by")


def _is_count(value: Any) -> bool:
    # Not isinstance: JSON's true is an int to Python.
    return type(value) is int and value >= 1


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_count, value))


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and _FILE.fullmatch(value) is not None


def _require_sums(index: FeatureIndex, facts: dict[str, Any]) -> None:
    """Raise ValueError unless the shards follow each other and the totals are their sums."""
    row = 0
    for entry in index.shards:
        if type(entry.first_row) is not int or entry.first_row != row:
            raise ValueError(
                f"{entry.file} is said to start at row {entry.first_row!r}; it is row {row}"
            )
        if entry.failed_rows > entry.rows:
            raise ValueError(f"{entry.file} has {entry.rows} rows; {entry.failed_rows} failed")
        row += entry.rows
    if len({entry.file for entry in index.shards}) != len(index.shards):
        raise ValueError("two shards are one file")
    for name, total in (("rows", index.rows), ("failed_rows", index.failed_rows)):
        if type(facts[name]) is not int or facts[name] != total:
            raise ValueError(f"{name} is {facts[name]!r}, the sum over its shards {total}")


def _line(entry: ShardEntry) -> dict[str, Any]:
    facts = asdict(entry)
    if entry.created_by is None:
        del facts["created_by"]
    return facts
