"""Names and types of a feature set: its header, its rows, its ids, its shards; no files.

docs/format.md describes the same for readers who do not have this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from pipeline.datasets.checks import check_relative
from pipeline.errors import PipelineError
from pipeline.files import parse_json
from pipeline.hashing import canonical_json, recipe_hash
from pipeline.packed import repeated_texts
from pipeline.schema import Natural, Positive, Sha256, decode

FORMAT = "pipeline-features"
FORMAT_VERSION = 1

OK, UNREADABLE, MISSING, REFUSED = 0, 1, 2, 3
STATUS_NAMES = {OK: "ok", UNREADABLE: "unreadable", MISSING: "missing", REFUSED: "refused"}


class ShardError(PipelineError):
    """A shard, or a folder of them, is not what was asked for."""


class DamagedShard(ShardError):
    """A shard file is truncated, altered or incomplete."""


class OtherShard(ShardError):
    """A sound shard, but of another recipe, other weights or other rows."""


@dataclass(frozen=True)
class FeatureHeader:
    """What all shards of a feature set have in common.

    Attributes
    ----------
    recipe : JSON values that say everything that changes a feature.
    weights, weights_sha256 : name and SHA-256 of the network's weights or the word vectors.
    axes : names of the axes of `features`, such as "row, cell_y, cell_x, channel".
    dataset : name of the dataset that the rows belong to.
    row_shape, dtype : of one row; dtype is "float32" or "float16".
    created_by : software and versions.
    trained_on : names of the datasets that the network or the word vectors were trained on, as far
        as is known. It changes no feature and is not compared.
    """

    recipe: dict[str, Any]
    weights: str
    weights_sha256: str
    axes: str
    dataset: str
    row_shape: tuple[int, ...]
    dtype: str
    created_by: str
    trained_on: tuple[str, ...] = ()

    @property
    def recipe_hash(self) -> str:
        """16 hex digits that name the features; see `pipeline.hashing.recipe_hash`."""
        return recipe_hash(self.recipe, self.weights_sha256)

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def attributes(self) -> dict[str, Any]:
        """Return the HDF5 attributes that every shard carries, less the shard's own numbers."""
        known = {"trained_on": canonical_json(list(self.trained_on))} if self.trained_on else {}
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "recipe": canonical_json(self.recipe),
            "recipe_hash": self.recipe_hash,
            "weights": self.weights,
            "weights_sha256": self.weights_sha256,
            "axes": self.axes,
            "dataset": self.dataset,
            "created_by": self.created_by,
            **known,
        }

    def metadata(self) -> dict[str, Any]:
        """Return everything that says what the features are: attributes, shape and type."""
        return {**self.attributes(), "row_shape": self.row_shape, "dtype": self.dtype}

    def difference(self, found: Mapping[str, Any]) -> str | None:
        """Return in which field other features first differ from these; None if they do not.

        The software's versions are not compared: features of another version of torch are
        still features of this recipe. Neither is what is known of a network's training.

        Parameters
        ----------
        found : the `metadata` of the others.
        """
        wanted = self.metadata()
        del wanted["created_by"]
        wanted.pop("trained_on", None)
        # Last, as it says least: it differs whenever the recipe or the weights do.
        wanted["recipe_hash"] = wanted.pop("recipe_hash")
        for name, value in wanted.items():
            if found.get(name) == value:
                continue
            if name == "recipe":
                return f"holds features of another recipe: {_fields(found.get(name), self.recipe)}"
            return f"has {name} {found.get(name)!r}, not {value!r}"
        return None


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of a text that are separated by commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def trained_on_of(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a shard's attributes say of `trained_on`, () where they say nothing.

    Raises
    ------
    ValueError
        It is no JSON list of names.
    """
    return decode(attributes.get("trained_on", "[]"), tuple[str, ...])


def _fields(found: Any, wanted: dict[str, Any]) -> str:
    """Return the fields in which a recipe, as JSON text, differs; the text itself if it is none."""
    try:
        old = dict(parse_json(found))
    except (ValueError, TypeError):
        return repr(found)
    return "; ".join(
        f"{name} {old.get(name)!r} (asked for: {wanted.get(name)!r})"
        for name in sorted({*old, *wanted})
        if old.get(name) != wanted.get(name)
    ) or repr(found)


@dataclass(frozen=True)
class RowBlock:
    """Some finished rows, in order.

    Attributes
    ----------
    features : (n, *row_shape), any float dtype; rows with a status other than 0 are ignored.
    status : (n,) uint8.
    errors : n texts, empty where the status is 0.
    source_crc32 : (n,) uint32, CRC-32 of what each row was made from: the bytes of an image
        file, or a caption's UTF-8 text; 0 where there was no file. None: not known, all 0.
    """

    features: np.ndarray
    status: np.ndarray
    errors: tuple[str, ...]
    source_crc32: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.status)


@dataclass(frozen=True)
class StoredBlock(RowBlock):
    """Rows as a shard stores them: of its dtype, finite, NaN where a row failed.

    Attributes
    ----------
    crc32 : (n,) uint32, CRC-32 of the bytes of each row.
    """

    crc32: np.ndarray = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard's line in `index.json`; `created_by` where it differs from the set's."""

    file: Annotated[str, Meta(pattern=r"\Ashard-[0-9]+-of-[0-9]+\.h5\Z")]
    first_row: Natural
    rows: Positive
    failed_rows: Natural
    sha256: Sha256
    content_sha256: Sha256
    created_by: str | None = None


def require_unique_ids(ids: Sequence[str], where: str) -> None:
    """Check that no id occurs twice.

    Raises
    ------
    ShardError
        How many do, and the first five.
    """
    if twice := repeated_texts(ids):
        raise ShardError(
            f"{where}: {len(twice)} of the ids occur more than once, first {twice[:5]}; every row "
            "needs an id of its own"
        )


def require_usable_ids(ids: Sequence[str], where: str) -> None:
    """Check that ids are unique and fit to be ids of a dataset.

    Raises
    ------
    ShardError
        Repeated ids, or ids that could not be file names below a folder.
    """
    require_unique_ids(ids, where)
    for row, row_id in enumerate(ids):
        if fault := check_relative(row_id):
            raise ShardError(f"{where}: id {row_id!r} of row {row} {fault}; ids are relative paths")
