"""The embedding file: images and captions in one space, with ids and the similarity meant.

A row is one vector, or a set of vectors (the cells of an image, the words of a caption) where
the similarity is one of sets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pipeline import __version__
from pipeline.errors import PipelineError
from pipeline.files import parse_json_object, require_held
from pipeline.hashing import canonical_json
from pipeline.packed import PackedTexts, TextIndex, repeated_texts
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.shards.sandbox import fault_of
from pipeline.shards.write import with_room

FORMAT = "pipeline-embeddings"
FORMAT_VERSION = 1

_IDS_AT_ONCE, _BLOCK_NUMBERS = 1 << 16, 1 << 22
# An id takes a reference of 16 bytes in a file, and its text with a header in a heap.
_ID_BYTES = 64


class EmbeddingsError(PipelineError):
    """Embeddings contradict themselves, or a file of them is not as its format says."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Images and captions as points, or sets of points, of one space, joined by ids.

    Attributes
    ----------
    image_ids : one id an image, each once.
    image_embeddings : (images, dim) float32, finite; (images, parts, dim) where the similarity is
        one of sets: absent parts are zero vectors.
    caption_ids : one id a caption, each once.
    caption_image_ids : for each caption the id of its image; every image has a caption.
    caption_embeddings : (captions, dim) or (captions, parts, dim) likewise, with the same dim and
        any number of parts.
    similarity : a name in `pipeline.retrieval.similarity.SIMILARITIES`.
    provenance : what made these rows, as JSON values; may be empty.

    Raises
    ------
    EmbeddingsError
        Any of the above does not hold. The first few ids concerned are named.
    """

    image_ids: Sequence[str]
    image_embeddings: npt.NDArray[np.float32]
    caption_ids: Sequence[str]
    caption_image_ids: Sequence[str]
    caption_embeddings: npt.NDArray[np.float32]
    similarity: str
    provenance: dict[str, Any]

    def __post_init__(self) -> None:
        ndim = _num_axes(self.similarity)
        _check_side("images", self.image_ids, self.image_embeddings, ndim, self.similarity)
        _check_side("captions", self.caption_ids, self.caption_embeddings, ndim, self.similarity)
        if self.image_embeddings.shape[-1] != self.caption_embeddings.shape[-1]:
            raise EmbeddingsError(
                f"images have {self.image_embeddings.shape[-1]} dimensions and captions "
                f"{self.caption_embeddings.shape[-1]}; both must lie in one space: embed both with "
                "one head"
            )
        if len(self.caption_image_ids) != len(self.caption_ids):
            raise EmbeddingsError(
                f"captions: {len(self.caption_ids)} ids but {len(self.caption_image_ids)} image "
                "ids found; expected one image id a caption"
            )
        rows = self.image_of_caption
        if (rows < 0).any():
            named = (self.caption_image_ids[row] for row in np.flatnonzero(rows < 0).tolist())
            unknown_ids = list(dict.fromkeys(named))
            raise EmbeddingsError(
                f"captions: image_id names {len(unknown_ids)} images that are not among the "
                f"images, first {unknown_ids[:5]}"
            )
        alone = np.flatnonzero(np.bincount(rows, minlength=len(self.image_ids)) == 0).tolist()
        if alone:
            raise EmbeddingsError(
                f"{len(alone)} images have no caption, first "
                f"{[self.image_ids[row] for row in alone[:5]]}; leave them out or add their "
                "captions"
            )

    @cached_property
    def image_of_caption(self) -> npt.NDArray[np.int64]:
        """The row of each caption's image, (captions,)."""
        return TextIndex(self.image_ids).rows_of(self.caption_image_ids, len(self.caption_ids))


def write_embeddings(path: Path, embeddings: Embeddings) -> None:
    """Write an embedding file, whole or not at all; equal embeddings give equal bytes.

    Raises
    ------
    ShardError
        The system refuses to write it, as on a full disk.
    """
    text = h5py.string_dtype()
    needed = embeddings.image_embeddings.nbytes + embeddings.caption_embeddings.nbytes
    needed += _ID_BYTES * (len(embeddings.image_ids) + 2 * len(embeddings.caption_ids))
    with with_room(path, needed) as part, h5py.File(part, "w", libver="earliest") as file:
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["similarity"] = embeddings.similarity
        file.attrs["provenance"] = canonical_json(embeddings.provenance)
        file.attrs["created_by"] = (
            f"caption-feature-pipeline {__version__}, h5py {h5py.__version__}, "
            f"HDF5 {h5py.version.hdf5_version}, numpy {np.__version__}"
        )
        for side, rows, columns in (
            ("images", embeddings.image_embeddings, {"id": embeddings.image_ids}),
            (
                "captions",
                embeddings.caption_embeddings,
                {"id": embeddings.caption_ids, "image_id": embeddings.caption_image_ids},
            ),
        ):
            group = file.create_group(side)
            group.create_dataset("embedding", data=rows, dtype="<f4", track_times=False)
            for name, ids in columns.items():
                column = group.create_dataset(name, (len(ids),), text, track_times=False)
                for start in range(0, len(ids), _IDS_AT_ONCE):
                    column[start : start + _IDS_AT_ONCE] = list(ids[start : start + _IDS_AT_ONCE])


def read_embeddings(path: Path) -> Embeddings:
    """Read and check an embedding file, ours or anybody's (docs/evaluation.md has the layout).

    float16 and float64 embeddings become float32; ids may be strings of fixed or variable length
    or integers; the attribute `provenance` may be missing.

    Raises
    ------
    EmbeddingsError
        The file is missing, is no HDF5, lacks a part, or its contents are refused by
        `Embeddings`.
    """
    if not path.is_file():
        raise EmbeddingsError(f"{path}: no such embedding file; `pipeline embed` writes one")
    _require_unbroken(path, _stored)
    try:
        return Embeddings(**_stored(path))
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{path}: {error}") from error
    # h5py and numpy raise these for links that lead nowhere and shapes that no memory holds.
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
        raise EmbeddingsError(
            f"{path}: cannot be read as HDF5 ({error}); expected an embedding file, see "
            "docs/evaluation.md"
        ) from error


def read_provenance(path: Path) -> dict[str, Any]:
    """Read what an embedding file says it was made from, and nothing else of it.

    Raises
    ------
    EmbeddingsError
        The file is no HDF5, or its provenance is no JSON object.
    """
    _require_unbroken(path, _stored_provenance)
    try:
        return _stored_provenance(path)
    except (OSError, RuntimeError) as error:
        raise EmbeddingsError(f"{path}: cannot be read as HDF5 ({error})") from error


def _require_unbroken(path: Path, read: Callable[[Path], object]) -> None:
    """Check that a file neither hangs nor crashes HDF5 when it is read."""
    if path.is_file() and (fault := fault_of(lambda: read(path), path.stat().st_size)):
        raise EmbeddingsError(f"{path}: HDF5 {fault}; make the file again")


def _stored_provenance(path: Path) -> dict[str, Any]:
    with h5py.File(path, "r") as file:
        return _provenance(file)


def _stored(path: Path) -> dict[str, Any]:
    """Return what is stored of the attributes of `Embeddings`, each checked by itself."""
    with h5py.File(path, "r") as file:
        return _read(file)


def _read(file: h5py.File) -> dict[str, Any]:
    form, version = _text(file, "format"), file.attrs.get("format_version", FORMAT_VERSION)
    if form not in (None, FORMAT) or np.shape(version) or version != FORMAT_VERSION:
        raise EmbeddingsError(
            f"says it is {form!r}, version {version}; expected {FORMAT!r}, version "
            f"{FORMAT_VERSION}, or neither attribute"
        )
    similarity = _similarity(file)
    ndim = _num_axes(similarity)
    return {
        "image_ids": _ids(file, "images/id"),
        "image_embeddings": _embedding(file, "images/embedding", ndim),
        "caption_ids": _ids(file, "captions/id"),
        "caption_image_ids": _ids(file, "captions/image_id"),
        "caption_embeddings": _embedding(file, "captions/embedding", ndim),
        "similarity": similarity,
        "provenance": _provenance(file),
    }


def _text(file: h5py.File, name: str) -> str | None:
    value = file.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is not None and not isinstance(value, str):
        raise EmbeddingsError(f"the attribute {name!r} is {value}, expected text")
    return value


def _similarity(file: h5py.File) -> str:
    value = _text(file, "similarity")
    if value is None:
        raise EmbeddingsError(
            "has no attribute 'similarity'; set it to one of " + ", ".join(SIMILARITIES)
        )
    return value


def _provenance(file: h5py.File) -> dict[str, Any]:
    try:
        return parse_json_object(_text(file, "provenance") or "{}")
    except ValueError as error:
        raise EmbeddingsError(
            f"the attribute 'provenance' is no JSON object ({error}); correct or remove it"
        ) from error


def _dataset(file: h5py.File, name: str, ndim: int) -> h5py.Dataset:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset) or dataset.ndim != ndim:
        found = (
            f"its shape is {dataset.shape}"
            if isinstance(dataset, h5py.Dataset)
            else f"the file has {', '.join(file) or 'nothing'} at its top"
        )
        raise EmbeddingsError(
            f"expected a dataset {name!r} of {ndim} dimension(s), but {found}; an embedding file "
            "has images/embedding, images/id, captions/embedding, captions/id and "
            "captions/image_id"
        )
    # A part that lives elsewhere reads as zeros where its source is gone.
    if dataset.is_virtual or dataset.external or dataset.file.filename != file.filename:
        raise EmbeddingsError(f"dataset {name!r} refers to another file; copy its rows into this")
    return require_held(dataset)


def _embedding(file: h5py.File, name: str, ndim: int) -> npt.NDArray[np.float32]:
    dataset = _dataset(file, name, ndim)
    if dataset.dtype.kind != "f":
        raise EmbeddingsError(f"dataset {name!r} is {dataset.dtype}, expected a float type")
    offset = dataset.id.get_offset()
    if dataset.dtype == np.dtype("<f4") and offset is not None and dataset.size:
        mapped = np.memmap(file.filename, "<f4", "r", offset, dataset.shape)
        return mapped.view(np.ndarray)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, which is refused
        return np.asarray(dataset[...]).astype(np.float32, copy=False)


def _ids(file: h5py.File, name: str) -> PackedTexts:
    dataset = _dataset(file, name, ndim=1)
    if dataset.dtype.kind in "iu":
        return PackedTexts(str(i) for i in dataset[...])
    if h5py.check_string_dtype(dataset.dtype) is None:
        raise EmbeddingsError(f"dataset {name!r} is {dataset.dtype}, expected text or integers")
    try:
        starts = range(0, len(dataset), _IDS_AT_ONCE)
        parts = (dataset.asstr("utf-8")[start : start + _IDS_AT_ONCE] for start in starts)
        return PackedTexts(text for part in parts for text in part)
    except UnicodeDecodeError as error:
        raise EmbeddingsError(f"dataset {name!r} is not UTF-8 ({error})") from error


def _num_axes(similarity: str) -> int:
    """Return how many axes embeddings have: 2, or 3 for a similarity of sets."""
    if similarity not in SIMILARITIES:
        raise EmbeddingsError(
            f"similarity {similarity!r} is not known; expected one of " + ", ".join(SIMILARITIES)
        )
    return 3 if SIMILARITIES[similarity].sets else 2


def _check_side(
    side: str, ids: Sequence[str], rows: npt.NDArray[np.float32], ndim: int, similarity: str
) -> None:
    if rows.ndim != ndim or rows.dtype != np.float32:
        shape = "(rows, parts, dim)" if ndim == 3 else "(rows, dim)"
        raise EmbeddingsError(
            f"{side}: embeddings are {rows.dtype} of shape {rows.shape}, expected float32 of "
            f"shape {shape} for the similarity {similarity}"
        )
    if not ids or 0 in rows.shape[1:]:
        raise EmbeddingsError(f"{side}: there are none, or they have no dimension ({rows.shape})")
    if len(ids) != len(rows):
        raise EmbeddingsError(f"{side}: {len(ids)} ids for {len(rows)} rows; expected one a row")
    if repeated := repeated_texts(ids):
        raise EmbeddingsError(
            f"{side}: {len(repeated)} ids occur more than once, first {repeated[:5]}"
        )
    if unusable := [i for i in ids if not i or "\x00" in i]:
        raise EmbeddingsError(f"{side}: empty ids or ids with a NUL, first {unusable[:5]}")
    step = max(1, _BLOCK_NUMBERS // max(1, int(np.prod(rows.shape[1:]))))
    bad = [
        start + row
        for start in range(0, len(rows), step)
        for row in np.flatnonzero(
            ~np.isfinite(rows[start : start + step]).all(axis=tuple(range(1, ndim)))
        ).tolist()
    ]
    if bad:
        raise EmbeddingsError(
            f"{side}: {len(bad)} rows have NaN or infinite numbers, first "
            f"{[ids[i] for i in bad[:5]]}; no rank is defined for them, so leave them out"
        )
