"""The embedding file: written block by block, read with memory-mapped rows.

docs/evaluation.md has the layout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
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
from pipeline.store import columns
from pipeline.store.columns import TEXT, Column
from pipeline.store.current.record import Record
from pipeline.store.guard import crash_of, trust
from pipeline.store.hashing import canonical_json
from pipeline.store.objects.block_cache import whole_file
from pipeline.store.own_files import reading
from pipeline.store.schema import decode
from pipeline.store.shards.writer import PatientFile, with_room

FORMAT = "pipeline-embeddings"
FORMAT_VERSION = 1
SIDES = ("images", "captions")
IN_FULL = {"store": "float32", "dim": None, "csls": None}
"""The entries of `embeddings_record` of vectors that are stored as embedded."""

Blocks = Iterable[npt.NDArray[np.float32]]
Part = TypeVar("Part")

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

    @property
    def store(self) -> Store:
        """Storage format of the rows."""
        return "float32" if self.quantiser is None else self.quantiser.store


def columns_of(store: Store, num_axes: int = 2) -> tuple[Column, ...]:
    """Return the datasets of an embedding file, in the order of their creation."""
    codes = {"float32": "<f4", "float16": "<f2"}.get(store, "|i1")
    layout: list[Column] = []
    for side in SIDES:
        dim, parts = f"{side} dim", (f"{side} parts",) if num_axes > 2 else ()
        layout.append(
            Column(
                f"{side}/embedding", codes, (side, *parts, dim), "rows, or the codes of a store",
                exact=store != "float32",
            )
        )  # fmt: skip
        if store == "binary":
            bits = "sign bits, eight per byte, most significant first"
            layout.append(Column(f"{side}/bits", "|u1", (side, f"{side} bytes"), bits, exact=True))
        if store in ("int8", "binary"):
            layout.append(Column(f"{side}/middle", "<f4", (dim,), "value of code 0"))
            layout.append(Column(f"{side}/step", "<f4", (dim,), "difference of successive codes"))
        # Files of others may have numbers as ids.
        layout.append(Column(f"{side}/id", TEXT, (side,), "ids of the rows", kinds="OSiu"))
        if side == "captions":
            owner = "id of the image that a caption describes"
            layout.append(Column(f"{side}/image_id", TEXT, (side,), owner, kinds="OSiu"))
    for side in reversed(SIDES):
        crc32 = "CRC-32 of the features of a row, if known"
        layout.append(Column(f"{side}/features_crc32", "<u4", (side,), crc32))
    return tuple(layout)


def write_embeddings(
    path: str | Path,
    embeddings: Embeddings,
    *,
    store: Store = "float32",
    calibrate_on: Embeddings | None = None,
) -> None:
    """Write an embedding file atomically and deterministically.

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
            no_caption = np.empty((0, *first.shape[1:]), np.float32)
            rows_of = {
                "images": chain([first], blocks),
                "captions": captions if header.caption_ids else chain([no_caption], captions),
            }
            values = _values_of(header)
            layout = columns_of(header.store, num_axes(header.similarity))
            for column in layout:
                side, _, name = column.name.partition("/")
                if name == "embedding":
                    _write_rows(file, layout, header, side, rows_of[side], stream)
                elif column.name in values:
                    columns.write(file, [column], values)
            # HDF5 writes its metadata when it closes; only then is a full disk certain to show.
            file.close()
            stream.require_written()
        with h5py.File(part, "r") as file:
            image_rows, caption_rows = _both_sides(file, layout, {})
        return Embeddings(
            header.image_ids,
            image_rows,
            header.caption_ids,
            header.caption_image_ids,
            caption_rows,
            header.similarity,
            header.provenance,
        )


def _values_of(header: EmbeddingsHeader) -> dict[str, Any]:
    """Return the values of the columns that are not computed with the rows."""
    values: dict[str, Any] = {
        "images/id": header.image_ids,
        "captions/id": header.caption_ids,
        "captions/image_id": header.caption_image_ids,
    }
    if header.quantiser is not None:
        for side, steps in header.quantiser.steps.items():
            values[f"{side}/middle"], values[f"{side}/step"] = header.quantiser.middles[side], steps
    for side, crc32 in header.features_crc32.items():
        values[f"{side}/features_crc32"] = crc32
    return values


def _write_rows(
    file: h5py.File,
    layout: Sequence[Column],
    header: EmbeddingsHeader,
    side: str,
    blocks: Blocks,
    stream: PatientFile,
) -> None:
    """Write the rows of a side as they arrive: `embedding`, and `bits` of a binary store."""
    rows = len(header.image_ids if side == "images" else header.caption_ids)
    stored = [c for c in layout if c.name in (f"{side}/embedding", f"{side}/bits")]
    shape: tuple[int, ...] | None = None
    row = 0
    for block in blocks:
        values: tuple[Any, ...] = (np.asarray(block, "<f4"),)
        if header.quantiser is not None:
            quantised = header.quantiser.encode(block, side, header.similarity)
            values = quantised.codes, quantised.bits
        if shape is None:
            shape = (rows, *block.shape[1:])
        if block.shape[1:] != shape[1:] or row + len(block) > rows:
            raise EmbeddingsError(
                f"{side}: rows of shape {block.shape} follow {row} rows of {shape}"
            )
        for column, part in zip(stored, values, strict=False):
            if column.name not in file:
                columns.create(file, column, (rows, *part.shape[1:]))
            file[column.name][row : row + len(block)] = part
        stream.require_written()
        row += len(block)
    if row != rows:
        raise EmbeddingsError(f"{side}: {rows} ids for {row} rows; expected one per row")


def read_embeddings(path: str | Path, *, codes: bool = False) -> Embeddings:
    """Read and validate an embedding file, from this project or others (docs/evaluation.md).

    float16 and float64 embeddings become float32; ids may be strings of fixed or variable length or
    integers; the attribute `provenance` may be missing.

    Parameters
    ----------
    path : str or Path. The file, or its URL: it is then copied to the cache, see docs/sharing.md.
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
    try:
        stored = _read(path, _stored)
        with _reading(path):
            embeddings = Embeddings(**stored)
            if codes:
                return embeddings
            sides = embeddings.image_embeddings, embeddings.caption_embeddings
            images, captions = (s[:] if isinstance(s, QuantisedRows) else s for s in sides)
            return replace(embeddings, image_embeddings=images, caption_embeddings=captions)
    except EmbeddingsError as error:
        if str(error).startswith(str(path)):
            raise
        raise EmbeddingsError(f"{path}: {error}") from error


def read_provenance(path: Path) -> dict[str, Any]:
    """Read only the provenance of an embedding file."""
    return _read(path, _stored_provenance)


def embeddings_record(path: Path) -> Record | None:
    """Return provenance, storage and dimensions of an embedding file; None if it is missing."""
    return _read(path, _stored_record) if path.is_file() else None


def read_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    """Read the CRC-32 (rows,) of the features of each row by side; {} if unknown."""
    return _read(path, _stored_features_crc32)


def _read(path: Path, read: Callable[[Path], Part]) -> Part:
    file = whole_file(path)
    if reason := crash_of(read, file):
        raise EmbeddingsError(f"{path}: HDF5 {reason}; compute the file again")
    with _reading(path):
        return read(file)


def _reading(path: Path) -> AbstractContextManager[None]:
    return reading(
        path,
        "an embedding file with images/embedding, images/id, captions/embedding, captions/id and "
        "captions/image_id",
        "`pipeline embed` and `pipeline.write_embeddings` write one; `pipeline.recall` evaluates "
        "arrays without a file",
        EmbeddingsError,
    )


# Functions of a path, since another process tries them first.
def _stored_provenance(path: Path) -> dict[str, Any]:
    with h5py.File(path, "r") as file:
        return _json(file, "provenance")


def _stored_record(path: Path) -> Record:
    with h5py.File(path, "r") as file:
        return {**IN_FULL, **_json(file, "provenance"), "store": _store(file)}


def _stored_features_crc32(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    by_side = {}
    with h5py.File(path, "r") as file:
        for column in columns_of("float32")[-len(SIDES) :]:
            side, _, _ = column.name.partition("/")
            if column.name not in file or file[column.name].shape != file[f"{side}/id"].shape:
                return {}
            values = columns.own_dataset(file, column)[...]
            by_side[side] = np.asarray(values, np.uint32)
    return by_side


def _stored(path: Path) -> dict[str, Any]:
    """Return the stored attributes of `Embeddings`, each checked by itself."""
    with h5py.File(path, "r") as file:
        form, version = _text(file, "format"), file.attrs.get("format_version", FORMAT_VERSION)
        if form not in (None, FORMAT) or np.shape(version) or version != FORMAT_VERSION:
            raise ValueError(
                f"its format is {form!r}, version {version}; expected {FORMAT!r}, version "
                f"{FORMAT_VERSION}, or neither attribute"
            )
        if (similarity := _text(file, "similarity")) is None:
            raise ValueError(
                "it has no attribute 'similarity'; set it to one of " + ", ".join(SIMILARITIES)
            )
        layout = columns_of(_store(file), num_axes(similarity))
        sizes: dict[str, int] = {}
        images, captions = _both_sides(file, layout, sizes)
        ids = columns.read(file, [c for c in layout if c.dtype == TEXT], sizes)
        return {
            "image_ids": ids["images/id"],
            "image_embeddings": images,
            "caption_ids": ids["captions/id"],
            "caption_image_ids": ids["captions/image_id"],
            "caption_embeddings": captions,
            "similarity": similarity,
            "provenance": _json(file, "provenance"),
        }


def _text(file: h5py.File, name: str) -> str | None:
    value = file.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its attribute {name!r} is {value}, expected text")
    return value


def _json(file: h5py.File, name: str) -> dict[str, Any]:
    try:
        return decode(_text(file, name) or "{}", dict[str, Any])
    except ValueError as error:
        raise ValueError(f"its attribute {name!r} is not a JSON object: {error}") from error


def _store(file: h5py.File) -> Store:
    store = _text(file, "store") or "float32"
    if store not in STORES:
        raise ValueError(f"its attribute 'store' is {store!r}, expected one of {STORES}")
    return store


def _both_sides(
    file: h5py.File, layout: Sequence[Column], sizes: dict[str, int]
) -> tuple[Vectors, Vectors]:
    """Return the rows of images and of captions; quantised ones as `QuantisedRows`."""
    store = _store(file)
    stored: dict[str, npt.NDArray[Any]] = {}
    for column in layout:
        side, _, name = column.name.partition("/")
        if name not in ("embedding", "bits", "middle", "step"):
            continue
        stored[column.name] = values = _mapped(columns.own_dataset(file, column, sizes))
        if name == "embedding":
            sizes[f"{side} bytes"] = -(-sizes[f"{side} dim"] // 8)
        if name in ("middle", "step") and not np.isfinite(values).all():
            raise ValueError(f"{column.name!r} has values that are not finite")
    if store == "float32":
        with np.errstate(over="ignore"):  # values beyond float32 become inf, which is rejected
            images, captions = (
                stored[f"{side}/embedding"].astype(np.float32, copy=False) for side in SIDES
            )
        return images, captions
    middles, steps = (
        {s: stored[f"{s}/{name}"].astype(np.float32) for s in SIDES if f"{s}/{name}" in stored}
        for name in ("middle", "step")
    )
    quantiser = Quantiser(store, middles, steps, _json(file, "calibration"))
    quantised = [
        # Indexed like an array; `read_embeddings` converts it unless codes are requested.
        cast(
            Vectors,
            QuantisedRows(stored[f"{s}/embedding"], s, quantiser, stored.get(f"{s}/bits")),
        )
        for s in SIDES
    ]
    return quantised[0], quantised[1]


def _mapped(dataset: h5py.Dataset) -> npt.NDArray[Any]:
    """Return a dataset, memory-mapped if it is contiguous."""
    offset = dataset.id.get_offset()
    if offset is None or not dataset.size:
        return np.asarray(dataset[...])
    mapped = np.memmap(dataset.file.filename, dataset.dtype, "r", offset, dataset.shape)
    return mapped.view(np.ndarray)
