"""The embedding file: written block by block, read with memory-mapped rows.

docs/evaluation.md has the layout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import h5py
import numpy as np
import numpy.typing as npt

from pipeline import __version__
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings, num_axes
from pipeline.retrieval.quantised.codes import (
    STORES,
    QuantisedRows,
    Quantiser,
    Store,
    quantiser_for,
)
from pipeline.retrieval.similarity import SIMILARITIES, Vectors
from pipeline.store.files import require_held
from pipeline.store.guard import crash_of, trust
from pipeline.store.hashing import canonical_json
from pipeline.store.packed import PackedTexts
from pipeline.store.schema import decode
from pipeline.store.shards.writer import PatientFile, with_room

FORMAT = "pipeline-embeddings"
FORMAT_VERSION = 1

Blocks = Iterable[npt.NDArray[np.float32]]
Part = TypeVar("Part")

_IDS_AT_ONCE = 1 << 16
# An id needs a 16-byte reference in a file, and its text and a header in a heap.
_ID_BYTES = 64


@dataclass(frozen=True, eq=False)
class EmbeddingsHeader:
    """Metadata of an embedding file, as of `Embeddings`."""

    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    caption_image_ids: Sequence[str]
    similarity: str
    provenance: dict[str, Any]
    quantiser: Quantiser | None = None  # None: float32
    # by side, the CRC-32 (rows,) of the input features of each row; {} if unknown
    features_crc32: Mapping[str, npt.NDArray[np.uint32]] = field(default_factory=dict)


def write_embeddings(
    path: str | Path,
    embeddings: Embeddings,
    *,
    store: Store = "float32",
    calibrate_on: Embeddings | None = None,
) -> None:
    """Write an embedding file atomically; deterministic.

    Parameters
    ----------
    path : str or Path. The new file.
    embeddings : Embeddings. Contents of the file.
    store : str. Storage of the rows: "float32", "float16", "int8" or "binary" (sign bits next to
        int8, for a first stage of search).
    calibrate_on : Embeddings or None. Embeddings of the training split that calibrate the range of
        each dimension for "int8" and "binary"; None: `embeddings`.

    Raises
    ------
    EmbeddingsError
        The similarity does not support the storage, or float16 cannot hold a value.
    ShardError
        The file cannot be written, for example on a full disk.

    Examples
    --------
    >>> rows = np.eye(2, dtype=np.float32)
    >>> space = pipeline.Embeddings(
    ...     ["a.jpg", "b.jpg"], rows, ["a.jpg#0", "b.jpg#0"], ["a.jpg", "b.jpg"], rows, "cosine", {}
    ... )
    >>> pipeline.write_embeddings("space.h5", space, store="int8")
    >>> pipeline.read_embeddings("space.h5").image_embeddings.shape
    (2, 2)
    """
    e, trained = embeddings, calibrate_on or embeddings
    quantiser = quantiser_for(
        store,
        e.similarity,
        trained.image_embeddings,
        trained.caption_embeddings,
        {
            "split": trained.provenance.get("split"),
            "images": len(trained.image_ids),
            "captions": len(trained.caption_ids),
        },
    )
    header = EmbeddingsHeader(
        e.image_ids, e.caption_ids, e.caption_image_ids, e.similarity, e.provenance, quantiser
    )
    write_in_blocks(Path(path), header, [e.image_embeddings], [e.caption_embeddings])


def write_in_blocks(
    path: Path, header: EmbeddingsHeader, images: Blocks, captions: Blocks
) -> Embeddings:
    """Write an embedding file atomically, with rows (n, dim) or (n, parts, dim) from iterators.

    Return its contents with memory-mapped rows; quantised ones are `QuantisedRows`.
    """
    # Errors of computing rows, which `with_room` would explain as errors of the file.
    failures: list[Exception] = []
    try:
        written = _write(path, header, _watched(images, failures), _watched(captions, failures))
    except Exception:
        if not failures:
            raise
    else:
        trust(path)
        return written
    raise failures[0]


def _watched(blocks: Blocks, failures: list[Exception]) -> Blocks:
    """Yield blocks; record the error that ends them."""
    try:
        yield from blocks
    except Exception as error:
        failures.append(error)
        raise


def _write(path: Path, header: EmbeddingsHeader, images: Blocks, captions: Blocks) -> Embeddings:
    blocks = iter(images)
    if (first := next(blocks, None)) is None:
        raise EmbeddingsError("images: found none")
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
            if header.quantiser is not None:
                file.attrs["store"] = header.quantiser.store
                file.attrs["calibration"] = canonical_json(header.quantiser.calibrated_on)
            group = file.create_group("images")
            _write_rows(group, header, len(header.image_ids), chain([first], blocks), stream)
            no_caption = np.empty((0, *first.shape[1:]), np.float32)
            _write_ids(group, "id", header.image_ids)
            group = file.create_group("captions")
            others = captions if header.caption_ids else chain([no_caption], captions)
            _write_rows(group, header, len(header.caption_ids), others, stream)
            _write_ids(group, "id", header.caption_ids)
            _write_ids(group, "image_id", header.caption_image_ids)
            for side, crc32 in header.features_crc32.items():
                file[side].create_dataset("features_crc32", data=crc32, track_times=False)
            # HDF5 writes its metadata when it closes; only then is a full disk certain to show.
            file.close()
            stream.require_written()
        with h5py.File(part, "r") as file:
            image_rows, caption_rows = _both_sides(file, num_axes(header.similarity))
        return Embeddings(
            header.image_ids,
            image_rows,
            header.caption_ids,
            header.caption_image_ids,
            caption_rows,
            header.similarity,
            header.provenance,
        )


def _write_rows(
    group: h5py.Group, header: EmbeddingsHeader, rows: int, blocks: Blocks, stream: PatientFile
) -> None:
    side, quantiser = group.name[1:], header.quantiser
    shape: tuple[int, ...] | None = None
    row = 0
    for block in blocks:
        if shape is None:
            shape = (rows, *block.shape[1:])
        if block.shape[1:] != shape[1:] or row + len(block) > rows:
            raise EmbeddingsError(
                f"{side}: rows of shape {block.shape} follow {row} rows of {shape}"
            )
        stored: dict[str, npt.NDArray[Any]] = {"embedding": np.asarray(block, "<f4")}
        if quantiser is not None:
            quantised = quantiser.encode(block, side, header.similarity)
            stored["embedding"] = quantised.codes
            if quantised.bits is not None:
                stored["bits"] = quantised.bits
        for name, values in stored.items():
            if name not in group:
                kind = values.dtype.newbyteorder("<")
                group.create_dataset(name, (rows, *values.shape[1:]), kind, track_times=False)
            group[name][row : row + len(block)] = values
        stream.require_written()
        row += len(block)
    if row != rows:
        raise EmbeddingsError(f"{side}: {rows} ids for {row} rows; expected one per row")
    if quantiser is not None and quantiser.steps:
        for name, of_sides in (("middle", quantiser.middles), ("step", quantiser.steps)):
            group.create_dataset(name, data=of_sides[side], dtype="<f4", track_times=False)


def _write_ids(group: h5py.Group, name: str, ids: Sequence[str]) -> None:
    column = group.create_dataset(name, (len(ids),), h5py.string_dtype(), track_times=False)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        column[start : start + _IDS_AT_ONCE] = list(ids[start : start + _IDS_AT_ONCE])


def read_embeddings(path: str | Path, *, codes: bool = False) -> Embeddings:
    """Read and validate an embedding file, from this project or others (docs/evaluation.md).

    float16 and float64 embeddings become float32; ids may be strings of fixed or variable length or
    integers; the attribute `provenance` may be missing.

    Parameters
    ----------
    path : str or Path. The file.
    codes : bool. Keep the rows of a quantised file (`pipeline embed --store`) quantised, as
        `pipeline.retrieval.quantised.codes.QuantisedRows`, which are indexed like arrays; otherwise
        convert them to float32.

    Returns
    -------
    Embeddings
        Contents of the file; contiguous float32 rows are memory-mapped.

    Raises
    ------
    EmbeddingsError
        The file is missing, is not HDF5, lacks a part, or its contents are rejected by
        `Embeddings`.

    Examples
    --------
    >>> space = pipeline.read_embeddings("data/embeddings/mine/qian2018-baseline.h5")
    >>> space.similarity, space.image_ids[0], space.image_embeddings.shape
    ('euclidean', 'scene-00002', (4, 1280))
    """
    path = Path(path)
    if not path.is_file():
        raise EmbeddingsError(f"{path}: no such embedding file; `pipeline embed` writes one")
    _require_unbroken(path, _stored)
    try:
        embeddings = Embeddings(**_stored(path))
        if codes:
            return embeddings
        sides = embeddings.image_embeddings, embeddings.caption_embeddings
        images, captions = (s[:] if isinstance(s, QuantisedRows) else s for s in sides)
        return replace(embeddings, image_embeddings=images, caption_embeddings=captions)
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{path}: {error}") from error
    # h5py and numpy raise these for dangling links and shapes that exceed the memory.
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
        raise EmbeddingsError(
            f"{path}: cannot be read as HDF5 ({error}); expected an embedding file, see "
            "docs/evaluation.md"
        ) from error


def read_provenance(path: Path) -> dict[str, Any]:
    """Read only the provenance of an embedding file."""
    return _read_part(path, _stored_provenance)


def read_store(path: Path) -> Store:
    """Read the storage format of an embedding file."""
    return _read_part(path, _stored_store)


def read_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    """Read the CRC-32 (rows,) of the features of each row by side; {} if unknown."""
    return _read_part(path, _stored_features_crc32)


def _read_part(path: Path, read: Callable[[Path], Part]) -> Part:
    _require_unbroken(path, read)
    try:
        return read(path)
    except (OSError, RuntimeError, KeyError) as error:
        raise EmbeddingsError(f"{path}: cannot be read as HDF5 ({error})") from error


def _require_unbroken(path: Path, read: Callable[[Path], object]) -> None:
    """Raise if a file hangs or crashes HDF5."""
    if reason := crash_of(read, path):
        raise EmbeddingsError(f"{path}: HDF5 {reason}; compute the file again")


# Functions of a path, since another process tries them first.
def _stored_provenance(path: Path) -> dict[str, Any]:
    with h5py.File(path, "r") as file:
        return _json(file, "provenance")


def _stored_store(path: Path) -> Store:
    with h5py.File(path, "r") as file:
        return _store(file)


def _stored_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    by_side = {}
    with h5py.File(path, "r") as file:
        for side in ("images", "captions"):
            crc32, ids = file.get(f"{side}/features_crc32"), file.get(f"{side}/id")
            if not isinstance(crc32, h5py.Dataset) or crc32.shape != ids.shape:
                return {}
            by_side[side] = np.asarray(require_held(crc32)[...], np.uint32)
    return by_side


def _stored(path: Path) -> dict[str, Any]:
    """Return the stored attributes of `Embeddings`, each checked by itself."""
    with h5py.File(path, "r") as file:
        form, version = _text(file, "format"), file.attrs.get("format_version", FORMAT_VERSION)
        if form not in (None, FORMAT) or np.shape(version) or version != FORMAT_VERSION:
            raise EmbeddingsError(
                f"is in the format {form!r}, version {version}; expected {FORMAT!r}, version "
                f"{FORMAT_VERSION}, or neither attribute"
            )
        if (similarity := _text(file, "similarity")) is None:
            raise EmbeddingsError(
                "has no attribute 'similarity'; set it to one of " + ", ".join(SIMILARITIES)
            )
        images, captions = _both_sides(file, num_axes(similarity))
        return {
            "image_ids": _ids(file, "images/id"),
            "image_embeddings": images,
            "caption_ids": _ids(file, "captions/id"),
            "caption_image_ids": _ids(file, "captions/image_id"),
            "caption_embeddings": captions,
            "similarity": similarity,
            "provenance": _json(file, "provenance"),
        }


def _text(file: h5py.File, name: str) -> str | None:
    value = file.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is not None and not isinstance(value, str):
        raise EmbeddingsError(f"the attribute {name!r} is {value}, expected text")
    return value


def _json(file: h5py.File, name: str) -> dict[str, Any]:
    try:
        return decode(_text(file, name) or "{}", dict[str, Any])
    except ValueError as error:
        raise EmbeddingsError(
            f"the attribute {name!r} is not a JSON object ({error}); correct or remove it"
        ) from error


def _dataset(file: h5py.File, name: str, ndim: int) -> h5py.Dataset:
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset) or dataset.ndim != ndim:
        reason = (
            f"its shape is {dataset.shape}"
            if isinstance(dataset, h5py.Dataset)
            else f"the file has {', '.join(file) or 'nothing'} at its top"
        )
        raise EmbeddingsError(
            f"expected a dataset {name!r} of {ndim} dimension(s), but {reason}; an embedding file "
            "has images/embedding, images/id, captions/embedding, captions/id and "
            "captions/image_id"
        )
    # HDF5 reads external or virtual parts as zeros if their source is missing.
    if dataset.is_virtual or dataset.external or dataset.file.filename != file.filename:
        raise EmbeddingsError(f"dataset {name!r} refers to another file; copy its rows into this")
    return require_held(dataset)


def _store(file: h5py.File) -> Store:
    store = _text(file, "store") or "float32"
    if store not in STORES:
        raise EmbeddingsError(f"the attribute 'store' is {store!r}, expected one of {STORES}")
    return store


def _both_sides(file: h5py.File, ndim: int) -> tuple[Vectors, Vectors]:
    """Return the rows of images and of captions; quantised ones as `QuantisedRows`."""
    store = _store(file)
    if store == "float32":
        return _embedding(file, "images/embedding", ndim), _embedding(
            file, "captions/embedding", ndim
        )
    sides, kind = ("images", "captions"), "<f2" if store == "float16" else "|i1"
    codes = [_stored_rows(file, f"{side}/embedding", ndim, kind) for side in sides]
    middles, steps = {}, {}
    if store != "float16":
        for side, rows in zip(sides, codes, strict=True):
            middles[side], steps[side] = (
                _calibrated(file, f"{side}/{name}", rows.shape[-1]) for name in ("middle", "step")
            )
    quantiser = Quantiser(store, middles, steps, _json(file, "calibration"))
    quantised = []
    for side, rows in zip(sides, codes, strict=True):
        bits = _stored_rows(file, f"{side}/bits", 2, "|u1") if store == "binary" else None
        if bits is not None and bits.shape != (len(rows), -(-rows.shape[1] // 8)):
            raise EmbeddingsError(f"dataset '{side}/bits' is {bits.shape} for rows {rows.shape}")
        # Indexed like an array; `read_embeddings` converts it unless codes are requested.
        quantised.append(cast(Vectors, QuantisedRows(rows, side, quantiser, bits)))
    return quantised[0], quantised[1]


def _embedding(file: h5py.File, name: str, ndim: int) -> Vectors:
    dataset = _dataset(file, name, ndim)
    if dataset.dtype.kind != "f":
        raise EmbeddingsError(f"dataset {name!r} is {dataset.dtype}, expected a float type")
    if (mapped := _mapped(dataset, "<f4")) is not None:
        return mapped
    with np.errstate(over="ignore"):  # values beyond float32 become inf, which is rejected
        return np.asarray(dataset[...]).astype(np.float32, copy=False)


def _stored_rows(file: h5py.File, name: str, ndim: int, kind: str) -> npt.NDArray[Any]:
    """Return rows in their stored dtype, memory-mapped if contiguous."""
    dataset = _dataset(file, name, ndim)
    if dataset.dtype != np.dtype(kind):
        raise EmbeddingsError(f"dataset {name!r} is {dataset.dtype}, expected {np.dtype(kind)}")
    mapped = _mapped(dataset, kind)
    return np.asarray(dataset[...]) if mapped is None else mapped


def _mapped(dataset: h5py.Dataset, kind: str) -> npt.NDArray[Any] | None:
    offset = dataset.id.get_offset()
    if dataset.dtype != np.dtype(kind) or offset is None or not dataset.size:
        return None
    mapped = np.memmap(dataset.file.filename, kind, "r", offset, dataset.shape)
    return mapped.view(np.ndarray)


def _calibrated(file: h5py.File, name: str, dim: int) -> Vectors:
    values = np.asarray(_dataset(file, name, 1)[...])
    if values.dtype.kind != "f" or values.shape != (dim,) or not np.isfinite(values).all():
        raise EmbeddingsError(
            f"dataset {name!r} is {values.dtype} of shape {values.shape}, expected {dim} finite "
            "floats"
        )
    return values.astype(np.float32)


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
