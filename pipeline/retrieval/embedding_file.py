"""The embedding file: written a block of rows at a time, read with its rows mapped.

docs/evaluation.md has the layout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from pipeline import __version__
from pipeline.files import require_held
from pipeline.guard import crash_of, trust
from pipeline.hashing import canonical_json
from pipeline.packed import PackedTexts
from pipeline.retrieval.embeddings import Embeddings, EmbeddingsError, num_axes
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.schema import decode
from pipeline.shards.writer import PatientFile, with_room

FORMAT = "pipeline-embeddings"
FORMAT_VERSION = 1

Blocks = Iterable[npt.NDArray[np.float32]]

_IDS_AT_ONCE = 1 << 16
# An id takes a reference of 16 bytes in a file, and its text with a header in a heap.
_ID_BYTES = 64


@dataclass(frozen=True, eq=False)
class EmbeddingsHeader:
    """Everything of an embedding file but the rows; see `Embeddings`.

    `features_crc32` has by side, if it is known, the CRC-32 of the features of each row, uint32.
    """

    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    caption_image_ids: Sequence[str]
    similarity: str
    provenance: dict[str, Any]
    features_crc32: Mapping[str, npt.NDArray[np.uint32]] = field(default_factory=dict)


def write_embeddings(path: str | Path, embeddings: Embeddings) -> None:
    """Write an embedding file atomically; equal embeddings give equal bytes.

    Parameters
    ----------
    path : str or Path. The new file.
    embeddings : Embeddings. What it holds.

    Raises
    ------
    ShardError
        The system refuses to write it, as on a full disk.
    """
    e = embeddings
    header = EmbeddingsHeader(
        e.image_ids, e.caption_ids, e.caption_image_ids, e.similarity, e.provenance
    )
    write_in_blocks(Path(path), header, [e.image_embeddings], [e.caption_embeddings])


def write_in_blocks(
    path: Path, header: EmbeddingsHeader, images: Blocks, captions: Blocks
) -> Embeddings:
    """Write an embedding file whose rows need not all be in memory, whole or not at all.

    Parameters
    ----------
    path : the new file.
    header : what the rows are of.
    images, captions : (n, dim) or (n, parts, dim) float32, as many rows together as there are ids.

    Returns
    -------
    Embeddings
        What the file holds, with its rows mapped.

    Raises
    ------
    EmbeddingsError
        See `Embeddings`; nothing is written then.
    ShardError
        The system refuses to write it, as on a full disk.
    """
    try:
        written = _write(path, header, _made(images), _made(captions))
    except _NotMade as failed:
        fault = failed.fault
    else:
        trust(path)
        return written
    raise fault


class _NotMade(Exception):
    """Rows could not be made, which is no fault of the file that they are for."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


def _made(blocks: Blocks) -> Blocks:
    try:
        yield from blocks
    except Exception as fault:
        raise _NotMade(fault) from fault


def _write(path: Path, header: EmbeddingsHeader, images: Blocks, captions: Blocks) -> Embeddings:
    blocks = iter(images)
    if (first := next(blocks, None)) is None:
        raise EmbeddingsError("images: there are none")
    rows = len(header.image_ids) + len(header.caption_ids)
    needed = first[:1].nbytes * rows + _ID_BYTES * (rows + len(header.caption_ids))
    with with_room(path, needed) as part:
        with (
            PatientFile(part, "w+") as stream,
            h5py.File(stream, "w", libver="earliest") as file,
        ):
            file.attrs["format"] = FORMAT
            file.attrs["format_version"] = FORMAT_VERSION
            file.attrs["similarity"] = header.similarity
            file.attrs["provenance"] = canonical_json(header.provenance)
            file.attrs["created_by"] = (
                f"caption-feature-pipeline {__version__}, h5py {h5py.__version__}, "
                f"HDF5 {h5py.version.hdf5_version}, numpy {np.__version__}"
            )
            group = file.create_group("images")
            _write_rows(group, len(header.image_ids), chain([first], blocks), stream)
            no_caption = np.empty((0, *first.shape[1:]), np.float32)
            _write_ids(group, "id", header.image_ids)
            group = file.create_group("captions")
            others = captions if header.caption_ids else chain([no_caption], captions)
            _write_rows(group, len(header.caption_ids), others, stream)
            _write_ids(group, "id", header.caption_ids)
            _write_ids(group, "image_id", header.caption_image_ids)
            for side, crc32 in header.features_crc32.items():
                file[side].create_dataset("features_crc32", data=crc32, track_times=False)
            file.close()
            stream.require_written()
        with h5py.File(part, "r") as file:
            ndim = num_axes(header.similarity)
            image_rows, caption_rows = (
                _embedding(file, f"{side}/embedding", ndim) for side in ("images", "captions")
            )
        return Embeddings(
            header.image_ids,
            image_rows,
            header.caption_ids,
            header.caption_image_ids,
            caption_rows,
            header.similarity,
            header.provenance,
        )


def _write_rows(group: h5py.Group, rows: int, blocks: Blocks, stream: PatientFile) -> None:
    dataset, row = None, 0
    for block in blocks:
        if dataset is None:
            shape = (rows, *block.shape[1:])
            dataset = group.create_dataset("embedding", shape, "<f4", track_times=False)
        if block.shape[1:] != dataset.shape[1:] or row + len(block) > rows:
            raise EmbeddingsError(
                f"{group.name[1:]}: rows of shape {block.shape} follow {row} rows of "
                f"{dataset.shape}"
            )
        dataset[row : row + len(block)] = block
        stream.require_written()
        row += len(block)
    if row != rows:
        raise EmbeddingsError(f"{group.name[1:]}: {rows} ids for {row} rows; expected one a row")


def _write_ids(group: h5py.Group, name: str, ids: Sequence[str]) -> None:
    column = group.create_dataset(name, (len(ids),), h5py.string_dtype(), track_times=False)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        column[start : start + _IDS_AT_ONCE] = list(ids[start : start + _IDS_AT_ONCE])


def read_embeddings(path: str | Path) -> Embeddings:
    """Read and check an embedding file, ours or anybody's (docs/evaluation.md has the layout).

    float16 and float64 embeddings become float32; ids may be strings of fixed or variable length
    or integers; the attribute `provenance` may be missing.

    Parameters
    ----------
    path : str or Path. The file.

    Raises
    ------
    EmbeddingsError
        The file is missing, is no HDF5, lacks a part, or its contents are refused by
        `Embeddings`.
    """
    path = Path(path)
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


def read_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    """Read by side the CRC-32 of the features that each row was embedded from; {} if unknown.

    Raises
    ------
    EmbeddingsError
        The file cannot be read.
    """
    _require_unbroken(path, _stored_features_crc32)
    try:
        return _stored_features_crc32(path)
    except (OSError, RuntimeError, KeyError) as error:
        raise EmbeddingsError(f"{path}: cannot be read as HDF5 ({error})") from error


def _stored_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    found = {}
    with h5py.File(path, "r") as file:
        for side in ("images", "captions"):
            crc32, ids = file.get(f"{side}/features_crc32"), file.get(f"{side}/id")
            if not isinstance(crc32, h5py.Dataset) or crc32.shape != ids.shape:
                return {}
            found[side] = np.asarray(require_held(crc32)[...], np.uint32)
    return found


def _require_unbroken(path: Path, read: Callable[[Path], object]) -> None:
    """Check that a file neither hangs nor crashes HDF5 when it is read."""
    if reason := crash_of(read, path):
        raise EmbeddingsError(f"{path}: HDF5 {reason}; make the file again")


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
    ndim = num_axes(similarity)
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
        return decode(_text(file, "provenance") or "{}", dict[str, Any])
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
