"""`index.json`: the attributes of a feature set once, and a line for each of its shards.

It is read and checked here, written last of a feature set, and made again from the shards alone.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from pipeline.files import write_json
from pipeline.hashing import canonical_json, sha256_of_json
from pipeline.packed import PackedTexts, repeated_texts
from pipeline.progress import QUIET, Monitor
from pipeline.schema import Natural, Positive, Sha256, decode, decode_format
from pipeline.shards.format import (
    FORMAT,
    FORMAT_VERSION,
    FeatureHeader,
    ShardEntry,
    ShardError,
    trained_on_of,
)
from pipeline.shards.layout import SHARD, SHARDS
from pipeline.shards.plan import PlanError, ShardPlan, default_rows_per_shard, plan_of
from pipeline.shards.reader import ShardFile
from pipeline.shards.sandbox import require_unbroken
from pipeline.shards.writer import explained
from pipeline.wording import counted

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

    @property
    def content_sha256(self) -> str:
        """Names all rows with their ids and values, however the files are compressed."""
        return sha256_of_json([entry.content_sha256 for entry in self.shards])

    @property
    def metadata(self) -> dict[str, Any]:
        """What a summary says of it, as JSON values."""
        return {
            "recipe_hash": self.header.recipe_hash,
            "rows": self.rows,
            "failed_rows": self.failed_rows,
            "shards": len(self.shards),
        }

    def describe(self) -> str:
        """Return rows, shape, type, shards, failures and recipe hash, for a log line."""
        header = self.header
        rows, shards = counted(self.rows, "row"), counted(len(self.shards), "shard")
        return (
            f"{rows} {header.row_shape} {header.dtype} in {shards}, "
            f"{self.failed_rows} failed, recipe {header.recipe_hash}"
        )

    def write(self, folder: Path) -> None:
        """Write `index.json`, the done record of the whole set, into `folder`.

        Raises
        ------
        ShardError
            It cannot be written, as on a full disk.
        """
        header, path = self.header, folder / INDEX_FILE
        values = {
            **header.attributes(),
            "recipe": header.recipe,
            **({"trained_on": list(header.trained_on)} if header.trained_on else {}),
            "row_shape": list(header.row_shape),
            "dtype": header.dtype,
            "rows": self.rows,
            "failed_rows": self.failed_rows,
            "rows_per_shard": self.rows_per_shard,
            "shards": [_line(s) for s in self.shards],
        }
        with explained(path, len(canonical_json(values))):
            write_json(path, values)


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


def read_index(folder: str | Path) -> FeatureIndex:
    """Read the `index.json` of a feature folder.

    Raises
    ------
    ShardError
        There is none, it is damaged or of another format, or its numbers contradict each other.
    """
    path = Path(folder) / INDEX_FILE
    if not path.is_file():
        raise ShardError(
            f"{path} not found: {folder} is not a finished feature folder; `pipeline extract` or "
            "`pipeline text` writes one, and resumes if it was interrupted"
        )
    try:
        return index_from(path.read_bytes(), str(path))
    except ShardError as error:
        raise ShardError(
            f"{error}; copy it again, or have `pipeline shards index {folder}` make it from the "
            "shards"
        ) from error


def index_from(data: bytes, where: str) -> FeatureIndex:
    """Read an index from its bytes.

    Parameters
    ----------
    data : the bytes of an `index.json`. where : it came from, for messages.

    Raises
    ------
    ShardError
        It is damaged or of another format, or its numbers contradict each other.
    """
    try:
        stored = decode_format(data, _Stored, FORMAT, FORMAT_VERSION)
        index = FeatureIndex(stored.header, stored.rows_per_shard, stored.shards)
        _require_sums(index, stored)
        return index
    except ValueError as error:
        raise ShardError(f"{where} is damaged or of another kind ({error})") from error


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The values of an `index.json`; see `FeatureHeader` and `FeatureIndex`."""

    recipe: dict[str, Any]
    recipe_hash: str
    weights: str
    weights_sha256: Sha256
    axes: str
    dataset: str
    created_by: str
    trained_on: tuple[str, ...] = ()
    row_shape: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    dtype: Literal["float32", "float16"]
    rows: Natural
    failed_rows: Natural
    rows_per_shard: Positive
    shards: Annotated[tuple[ShardEntry, ...], Meta(min_length=1)]

    @property
    def header(self) -> FeatureHeader:
        return FeatureHeader(**{f.name: getattr(self, f.name) for f in fields(FeatureHeader)})


def _require_sums(index: FeatureIndex, stored: _Stored) -> None:
    """Raise ValueError unless shards follow each other, and hash and totals are those of them."""
    if index.header.recipe_hash != stored.recipe_hash:
        raise ValueError("its recipe is not the one that its recipe_hash names")
    row = 0
    for entry in index.shards:
        if entry.first_row != row:
            raise ValueError(f"{entry.file} starts at row {entry.first_row}, expected {row}")
        if entry.failed_rows > entry.rows:
            raise ValueError(f"{entry.file} has {entry.rows} rows; {entry.failed_rows} failed")
        row += entry.rows
    if len({entry.file for entry in index.shards}) != len(index.shards):
        raise ValueError("two shards are one file")
    for name, found, total in (
        ("rows", stored.rows, index.rows),
        ("failed_rows", stored.failed_rows, index.failed_rows),
    ):
        if found != total:
            raise ValueError(f"{name} is {found}, the sum over its shards {total}")


def _line(entry: ShardEntry) -> dict[str, Any]:
    values = asdict(entry)
    if entry.created_by is None:
        del values["created_by"]
    return values


def rebuild_index(
    folder: str | Path,
    rows_per_shard: int | None = None,
    *,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Check every byte that has a checksum of all shards, and write their index.

    The index has the same bytes as the lost one, but where a set's last shards are a single one
    that was made with other rows per shard than the default: shards do not record that.

    Parameters
    ----------
    folder : str or Path. Of the shards; an `index.json` that is there is replaced.
    rows_per_shard : int or None. What a single last shard was planned with. Default: as the largest
        before it, else the default of `ShardBuild`, or the shard's rows if they are more.
    monitor : Monitor. Receives the progress.

    Raises
    ------
    OtherShard
        Shards of several sets; the field that differs is named.
    DamagedShard
        A shard is damaged.
    ShardError
        No shards, some are missing, or an id has two rows.
    """
    folder = Path(folder)
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
    with monitor.progress("index", "row") as progress:
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
        recipe = decode(about["recipe"], dict[str, Any])
        trained_on = trained_on_of(about)
        names = ("weights", "weights_sha256", "axes", "dataset", "created_by")
        values = {name: str(about[name]) for name in names}
    except (ValueError, KeyError) as error:
        raise ShardError(f"{first.path}: its attributes are damaged ({error})") from error
    return FeatureHeader(
        recipe,
        row_shape=first.row_shape,
        dtype=first.dtype.name,
        trained_on=trained_on,
        **values,
    )


def _plan(
    folder: Path, shards: list[ShardFile], header: FeatureHeader, rows_per_shard: int | None
) -> ShardPlan:
    """Return the plan that gives all these shards, and check that none is missing."""
    together = [s for s in shards if s.attributes.get(SHARDS) == shards[-1].attributes.get(SHARDS)]
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
        says = tuple(shard.attributes.get(name) for name in (SHARD, SHARDS))
        if says != (number, plan.shards_then(number)):
            raise ShardError(
                f"{shard.path} says that it is shard {says[0]} (from 0) of {says[1]}, and it "
                f"stands where {number} of {plan.shards_then(number)} belongs; {remedy}"
            )
    return plan


def _require_unique_ids(shards: list[ShardFile]) -> None:
    every = PackedTexts(row_id for shard in shards for row_id in shard.ids)
    repeated = {*repeated_texts(every)}
    seen: dict[str, ShardFile] = {}
    for shard in shards if repeated else ():
        for row, row_id in enumerate(shard.ids):
            if row_id not in repeated:
                continue
            if row_id in seen:
                raise ShardError(
                    f"{shard.path}, row {row}: id {row_id!r} has a row before, in "
                    f"{seen[row_id].path}"
                )
            seen[row_id] = shard
