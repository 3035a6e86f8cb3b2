"""Names and types of a feature set: header, rows, ids and shards; no file access.

docs/format.md is the specification for readers without this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import numpy as np
from msgspec import Meta

from pipeline.datasets.checks import check_relative
from pipeline.store.errors import PipelineError
from pipeline.store.files import parse_json
from pipeline.store.hashing import canonical_json, recipe_hash
from pipeline.store.packed import repeated_texts
from pipeline.store.schema import Natural, Positive, Sha256, decode

FORMAT = "pipeline-features"
FORMAT_VERSION = 2
"""The version of new sets; a set, also an extended or unfinished one, keeps its own."""
VERSIONS = (1, FORMAT_VERSION)

SOURCE_CRC32 = "source_crc32"
"""The dataset of `RowBlock.source_crc32`; the others are named in `layout`."""

OK, UNREADABLE, MISSING, REFUSED = 0, 1, 2, 3
STATUS_NAMES = {OK: "ok", UNREADABLE: "unreadable", MISSING: "missing", REFUSED: "refused"}


class ShardError(PipelineError):
    """A shard or a folder of shards is invalid or not the requested one."""


class DamagedShard(ShardError):
    """A shard file is truncated, corrupt or incomplete."""


class OtherShard(ShardError):
    """A valid shard of another recipe, other weights or other rows; an update may replace it."""


@dataclass(frozen=True)
class FeatureHeader:
    """Metadata shared by all shards of a feature set."""

    recipe: dict[str, Any]
    """All settings that change a feature, as JSON values."""
    weights: str
    weights_sha256: str
    """SHA-256 of the network weights or word vectors."""
    axes: str
    """Names of the axes of `features`, such as "row, cell_y, cell_x, channel"."""
    dataset: str
    row_shape: tuple[int, ...]
    dtype: str  # "float32" or "float16"
    created_by: str
    """Software and versions."""
    trained_on: tuple[str, ...] = ()
    """Known training datasets of the network or word vectors; changes no feature."""
    format_version: int = FORMAT_VERSION
    """Version of the files, which changes neither values nor `content_sha256`."""

    @property
    def recipe_hash(self) -> str:
        """16 hex digits that identify the features; see `pipeline.store.hashing.recipe_hash`."""
        return recipe_hash(self.recipe, self.weights_sha256)

    @property
    def renewed(self) -> "FeatureHeader":
        """The header of new files with these features."""
        return replace(self, format_version=FORMAT_VERSION)

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def attributes(self) -> dict[str, Any]:
        """Return the HDF5 attributes that all shards share, without the shard's own numbers."""
        trained = {"trained_on": canonical_json(list(self.trained_on))} if self.trained_on else {}
        return {
            "format": FORMAT,
            "format_version": self.format_version,
            "recipe": canonical_json(self.recipe),
            "recipe_hash": self.recipe_hash,
            "weights": self.weights,
            "weights_sha256": self.weights_sha256,
            "axes": self.axes,
            "dataset": self.dataset,
            "created_by": self.created_by,
            **trained,
        }

    def metadata(self) -> dict[str, Any]:
        """Return the attributes, shape and dtype of the features."""
        return {**self.attributes(), "row_shape": self.row_shape, "dtype": self.dtype}

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """Return the first field in which the `metadata` of other features differ, or None."""
        expected = self.metadata()
        # Features computed with another version of torch still have this recipe.
        del expected["created_by"], expected["format_version"]
        expected.pop("trained_on", None)
        # Compared last, since it differs whenever a more specific field does.
        expected["recipe_hash"] = expected.pop("recipe_hash")
        for name, value in expected.items():
            if other.get(name) == value:
                continue
            if name == "recipe":
                return f"holds features of another recipe: {_fields(other.get(name), value)}"
            return f"has {name} {other.get(name)!r}, not {value!r}"
        return None

    def difference_of_shard(self, shard: Mapping[str, Any]) -> str | None:
        """Return `difference`, or that the shard has another version than its set, or None."""
        if unlike := self.difference(shard):
            return unlike
        if (version := shard.get("format_version")) != self.format_version:
            return (
                f"has format_version {version!r}, not {self.format_version}; all shards of a set "
                "have one version"
            )
        return None


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def trained_on_of(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `trained_on` from a shard's attributes, or (); invalid JSON raises ValueError."""
    return decode(attributes.get("trained_on", "[]"), tuple[str, ...])


def _fields(text: Any, requested: str) -> str:
    """Return the fields in which two recipes, as JSON texts, differ; the first if it is invalid."""
    recipe = dict(parse_json(requested))
    try:
        old = dict(parse_json(text))
    except (ValueError, TypeError):
        return repr(text)
    return "; ".join(
        f"{name} {old.get(name)!r} (requested: {recipe.get(name)!r})"
        for name in sorted({*old, *recipe})
        if old.get(name) != recipe.get(name)
    ) or repr(text)


@dataclass(frozen=True)
class RowBlock:
    """Consecutive finished rows."""

    features: np.ndarray
    """(n, *row_shape) of any float dtype; rows with a status other than 0 are ignored."""
    status: np.ndarray
    """(n,) uint8."""
    errors: tuple[str, ...]
    """n failure reasons, "" where the status is 0."""
    source_crc32: np.ndarray | None = None
    """(n,) uint32, CRC-32 of the image file or of the UTF-8 caption; 0 or None: unknown."""
    other_sources: Mapping[str, np.ndarray] = field(default_factory=dict)
    """(n,) values of further columns of `pipeline.store.shards.layout.source_columns` by name."""

    def __len__(self) -> int:
        return len(self.status)

    @property
    def sources(self) -> dict[str, np.ndarray]:
        """(n,) known values of the columns that describe the sources of rows, by name."""
        crc32 = {} if self.source_crc32 is None else {SOURCE_CRC32: self.source_crc32}
        return crc32 | dict(self.other_sources)

    @staticmethod
    def of(rows: "StoredRows", at: np.ndarray, features: np.ndarray) -> "RowBlock":
        """Return rows by position `at` (n,), with their `features` (n, *row_shape)."""
        sources = {name: values[at] for name, values in rows.sources.items()}
        errors = tuple(rows.errors[row] for row in at.tolist())
        crc32 = sources.pop(SOURCE_CRC32, None)
        return RowBlock(features, rows.status[at], errors, crc32, sources)

    @staticmethod
    def joined(blocks: Sequence["RowBlock"]) -> "RowBlock":
        """Return the concatenation of blocks with the same columns."""
        sources = {
            name: np.concatenate([block.sources[name] for block in blocks])
            for name in blocks[0].sources
        }
        return RowBlock(
            np.concatenate([block.features for block in blocks]),
            np.concatenate([block.status for block in blocks]),
            tuple(error for block in blocks for error in block.errors),
            sources.pop(SOURCE_CRC32, None),
            sources,
        )


@dataclass(frozen=True)
class StoredBlock(RowBlock):
    """Rows as a shard stores them: of its dtype, finite, NaN where a row failed."""

    crc32: np.ndarray = field(kw_only=True)
    """(n,) uint32, CRC-32 of the bytes of each row."""

    @staticmethod
    def of(rows: "StoredRows", at: np.ndarray, features: np.ndarray) -> "StoredBlock":
        """Return rows by position `at` (n,), with their stored `features` (n, *row_shape)."""
        return StoredBlock(**vars(RowBlock.of(rows, at, features)), crc32=rows.crc32[at])


class StoredRows(Protocol):
    """Columns of rows that a shard, a block or a set stores."""

    @property
    def status(self) -> np.ndarray: ...
    @property
    def errors(self) -> Sequence[str]: ...
    @property
    def crc32(self) -> np.ndarray: ...
    @property
    def sources(self) -> Mapping[str, np.ndarray]: ...


def failures_of(rows: Any) -> list[tuple[str, str, str]]:
    """Return id, status name and reason of each failed row of a shard or set, in order."""
    return [
        (rows.ids[row], STATUS_NAMES.get(int(rows.status[row]), "?"), rows.errors[row])
        for row in np.flatnonzero(rows.status != OK).tolist()
    ]


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """Entry of a shard in `index.json`."""

    file: Annotated[str, Meta(pattern=r"\Ashard-[0-9]+-of-[0-9]+\.h5\Z")]
    first_row: Natural
    rows: Positive
    failed_rows: Natural
    sha256: Sha256
    content_sha256: Sha256
    """SHA-256 of ids and values, independent of compression."""
    created_by: str | None = None
    """Software and versions, if they differ from those of the set."""


def require_unique_ids(ids: Sequence[str], where: str) -> None:
    """Raise if an id occurs twice, of which five are named, or cannot be stored."""
    if twice := repeated_texts(ids):
        raise ShardError(
            f"{where}: {len(twice)} ids occur more than once, first {twice[:5]}; ids must be unique"
        )
    if with_nul := [row_id for row_id in ids if "\0" in row_id]:
        raise ShardError(f"{where}: id {with_nul[0]!r} contains NUL, which HDF5 pads texts with")


def require_usable_ids(ids: Sequence[str], where: str) -> None:
    """Raise unless ids are unique and valid ids of a dataset: relative file paths."""
    require_unique_ids(ids, where)
    for row, row_id in enumerate(ids):
        if fault := check_relative(row_id):
            raise ShardError(f"{where}: id {row_id!r} of row {row} {fault}; ids are relative paths")
