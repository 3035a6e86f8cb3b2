"""`index.json`: the attributes of a feature set, and one entry for each of its shards.

It is validated on reading, written last, and can be rebuilt from the shards.
"""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from pipeline.store.files import write_json
from pipeline.store.hashing import canonical_json, sha256_of_json
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import MOST_DESCRIPTION_BYTES, read_bounded
from pipeline.store.objects.urls import url_of
from pipeline.store.packed import PackedTexts, repeated_texts
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.schema import Natural, Positive, Sha256, decode, decode_format
from pipeline.store.shards.format import (
    FORMAT,
    VERSIONS,
    FeatureHeader,
    ShardEntry,
    ShardError,
    trained_on_of,
)
from pipeline.store.shards.layout import SHARD, SHARDS
from pipeline.store.shards.plan import ShardPlan, default_rows_per_shard, plan_of
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.sandbox import require_unbroken
from pipeline.store.shards.writer import explained
from pipeline.store.wording import counted, without_secrets

INDEX_FILE, _LABEL_SUM = "index.json", "trained_on_sha256"


@dataclass(frozen=True)
class FeatureIndex:
    """A finished feature set."""

    header: FeatureHeader
    """Metadata of all shards; `created_by` is the first shard's."""
    rows_per_shard: int
    """Rows of every shard but the last, for the shards appended last."""
    shards: tuple[ShardEntry, ...]
    """One entry per shard, in row order."""

    @property
    def rows(self) -> int:
        """Number of rows in all shards."""
        return sum(s.rows for s in self.shards)

    @property
    def failed_rows(self) -> int:
        """Number of rows with a status other than 0."""
        return sum(s.failed_rows for s in self.shards)

    def plan(self) -> ShardPlan:
        """Return the plan that produces these shards; an altered index raises `ShardError`."""
        return plan_of([(s.file, s.rows) for s in self.shards], self.rows_per_shard)

    @property
    def content_sha256(self) -> str:
        """SHA-256 of all rows with their ids and values, independent of compression."""
        return sha256_of_json([entry.content_sha256 for entry in self.shards])

    @property
    def metadata(self) -> dict[str, Any]:
        """Summary as JSON values."""
        return {
            "recipe_hash": self.header.recipe_hash,
            "rows": self.rows,
            "failed_rows": self.failed_rows,
            "shards": len(self.shards),
        }

    def describe(self) -> str:
        """Return rows, shape, dtype, shards, failures and recipe hash, for a log line."""
        header = self.header
        rows, shards = counted(self.rows, "row"), counted(len(self.shards), "shard")
        return (
            f"{rows} {header.row_shape} {header.dtype} in {shards}, "
            f"{self.failed_rows} failed, recipe {header.recipe_hash}"
        )

    def write(self, folder: Path) -> None:
        """Write `index.json`, the done record of the whole set, into `folder`."""
        header, path = self.header, folder / INDEX_FILE
        label = list(header.trained_on)
        values = {
            **header.attributes(),
            "recipe": header.recipe,
            **({"trained_on": label, _LABEL_SUM: sha256_of_json(label)} if label else {}),
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
    """Return the index of shards, each with its `created_by`, in row order."""
    # Versions of the software may differ in an extended set. It has those of the first shard, and
    # entries of shards of others record theirs.
    shards = list(shards)
    first = shards[0][1]
    return FeatureIndex(
        replace(header, created_by=first),
        rows_per_shard,
        tuple(
            replace(entry, created_by=None if created_by == first else created_by)
            for entry, created_by in shards
        ),
    )


def read_index(folder: str | Path) -> FeatureIndex:
    """Read the `index.json` of a feature folder or URL; raise if it is missing or invalid."""
    path = Path(folder) / INDEX_FILE
    if (url := url_of(folder)) is not None:
        return _remote_index(url)
    if not path.is_file():
        if path.parent.is_symlink():
            raise ShardError(
                f"{folder} is a link to {os.path.realpath(folder)}, where no feature set was "
                "found; move it back, or run its experiments again with its new folder as "
                "`image_features=...` or `caption_features=...`"
            )
        raise ShardError(
            f"{path} not found: {folder} is not a finished feature folder; `pipeline extract` or "
            "`pipeline text` writes one, and resumes if it was interrupted; `pipeline shards "
            "import` reads files of other programs"
        )
    try:
        return index_from(path.read_bytes(), str(path))
    except ShardError as error:
        raise ShardError(
            f"{error}; copy it again, or rebuild it from the shards with `pipeline shards index "
            f"{folder}`"
        ) from error


def _remote_index(url: str) -> FeatureIndex:
    user, _, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    if "?" in url or ":" in user:
        raise ShardError(
            f"{without_secrets(url)}: a feature set is read from a URL without password and query, "
            "which messages would show; pass credentials through the environment, or pull the set"
        )
    index = index_in(open_remote(url), MOST_DESCRIPTION_BYTES)
    if index is None:
        raise ShardError(
            f"{url}/{INDEX_FILE} not found: it is not a finished feature set of its own rows; "
            "`pipeline shards push FOLDER URL` sends one, `pipeline shards merge` writes a view as "
            "one"
        )
    return index


def index_in(remote: Remote, most: int) -> FeatureIndex | None:
    """Return the index of a remote folder, of at most `most` bytes; None if it has none."""
    data = read_bounded(remote, INDEX_FILE, most, QUIET.log)
    return None if data is None else index_from(data, f"{remote.shown}/{INDEX_FILE}")


def index_from(data: bytes, where: str) -> FeatureIndex:
    """Parse the bytes of an `index.json`; `where` is their origin in messages."""
    try:
        stored = decode_format(data, _Stored, FORMAT, *VERSIONS)
        index = FeatureIndex(stored.header, stored.rows_per_shard, stored.shards)
        _require_sums(index, stored)
        return index
    except ValueError as error:
        raise ShardError(f"{where} is corrupt or of another format ({error})") from error


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """Schema of `index.json`; `FeatureHeader` and `FeatureIndex` explain the fields."""

    format_version: int
    recipe: dict[str, Any]
    recipe_hash: str
    weights: str
    weights_sha256: Sha256
    axes: str
    dataset: str
    created_by: str
    trained_on: tuple[str, ...] = ()
    trained_on_sha256: Sha256 | None = None
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
    """Raise ValueError unless shards are contiguous, and the hash and totals match them."""
    if index.header.recipe_hash != stored.recipe_hash:
        raise ValueError("recipe and recipe_hash do not match")
    # Of no other checksum of the set, since the same command with another name changes it alone.
    if stored.trained_on_sha256 not in (None, sha256_of_json(list(stored.trained_on))):
        raise ValueError(f"trained_on {stored.trained_on} does not have its {_LABEL_SUM}")
    row = 0
    for entry in index.shards:
        if entry.first_row != row:
            raise ValueError(f"{entry.file} starts at row {entry.first_row}, expected {row}")
        if entry.failed_rows > entry.rows:
            raise ValueError(f"{entry.file} has {entry.rows} rows; {entry.failed_rows} failed")
        row += entry.rows
    if len({entry.file for entry in index.shards}) != len(index.shards):
        raise ValueError("two shards have the same file name")
    for name, stated, total in (
        ("rows", stored.rows, index.rows),
        ("failed_rows", stored.failed_rows, index.failed_rows),
    ):
        if stated != total:
            raise ValueError(f"{name} is {stated}, but {total} as the sum over its shards")


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
    """Verify all checksums of all shards and write their index.

    The index has the same bytes as the lost one, except if the set ends in a single appended shard
    with a `rows_per_shard` other than the default, which shards do not record.

    Parameters
    ----------
    folder : str or Path. Folder of the shards; an existing `index.json` is replaced.
    rows_per_shard : int or None. Planned size of a single last shard. Default: that of the largest
        shard before it, else the default of `ShardBuild`, or the shard's rows if they are more.
    monitor : Monitor. Receives the progress.

    Raises
    ------
    OtherShard
        Shards of several sets; the first different field is named.
    DamagedShard
        A shard is corrupt.
    ShardError
        No shards, missing shards, or an id with two rows.

    Examples
    --------
    >>> pipeline.rebuild_index("features/mine").rows
    3
    """
    folder = Path(folder)
    paths = sorted(folder.glob("shard-*.h5"))
    if not paths:
        raise ShardError(f"{folder} has no shard-*.h5; name a folder of feature shards")
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
        "".join(
            values.values()
        ).encode()  # raises: bytes that are not UTF-8 are half surrogate pairs
        version = int(about["format_version"])
    except (ValueError, KeyError) as error:
        raise ShardError(f"{first.path}: its attributes are corrupt ({error})") from error
    return FeatureHeader(
        recipe,
        row_shape=first.row_shape,
        dtype=first.dtype.name,
        trained_on=trained_on,
        format_version=version,
        **values,
    )


def _plan(
    folder: Path, shards: list[ShardFile], header: FeatureHeader, rows_per_shard: int | None
) -> ShardPlan:
    """Return the plan that produces these shards; raise if one is missing."""
    # The number of shards, which each one records, separates those of one run from those appended
    # later. A single last shard does not show the size that was planned for it.
    together = [s for s in shards if s.attributes.get(SHARDS) == shards[-1].attributes.get(SHARDS)]
    size = together[0].rows
    if len(together) == 1:
        default = default_rows_per_shard(header.row_bytes) if len(shards) == 1 else 1
        size = rows_per_shard or max(default, *(shard.rows for shard in shards))
    elif any(shard.rows != size for shard in together[:-1]) or together[-1].rows > size:
        size = max(shard.rows for shard in shards)  # each has the rows of an input file
    remedy = "copy all shards of one set here, and no others"
    try:
        plan = plan_of([(shard.path.name, shard.rows) for shard in shards], size)
    except ShardError as error:
        raise ShardError(f"{folder}: {error}; {remedy}") from error
    for number, shard in enumerate(shards):
        recorded = tuple(shard.attributes.get(name) for name in (SHARD, SHARDS))
        if recorded != (number, plan.counts[number]):
            raise ShardError(
                f"{shard.path} is recorded as shard {recorded[0]} (from 0) of {recorded[1]}, "
                f"expected shard {number} of {plan.counts[number]}; {remedy}"
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
                    f"{shard.path}, row {row}: duplicate id {row_id!r}, first in "
                    f"{seen[row_id].path}"
                )
            seen[row_id] = shard
