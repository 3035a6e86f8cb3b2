"""Export of feature sets to the layouts of other programs, in bounded memory."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from pipeline.datasets.manifest import read_manifest
from pipeline.store.builder.locking import require_output_file
from pipeline.store.convert.importers.id_files import read_ids
from pipeline.store.convert.layouts import EXPORTS, SUFFIXES
from pipeline.store.convert.references import export_references
from pipeline.store.errors import WrongUsage
from pipeline.store.files import appearing_whole
from pipeline.store.hashing import canonical_json
from pipeline.store.objects.urls import url_of
from pipeline.store.progress import QUIET, Monitor, Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import RowBlock, ShardError
from pipeline.store.shards.index import INDEX_FILE
from pipeline.store.shards.layout import (
    FEATURES,
    stored_dtype,
    write_attributes,
    write_rows,
)
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import require_own_rows
from pipeline.store.shards.writer import with_room, write_shard

_IMS, _IDS = "_ims.npy", "_ids.txt"
# Limit of the safetensors format.
_SAFETENSORS_HEADER_BYTES = 100_000_000
# Of a row besides its id: its error, numbers and status.
_REST_BYTES = 100


def export(
    features: FeatureSet | str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    ids: Sequence[str] | str | Path | None = None,
    repeat: int = 1,
    copy: bool = False,
    compress: bool = False,
    allow_failed: bool = False,
    dataset: str | Path | None = None,
    url: str | None = None,
    monitor: Monitor = QUIET,
) -> int:
    """Export a feature set to a layout of another program, and return the number of rows.

    Parameters
    ----------
    features : FeatureSet, str or Path. A feature set or its folder.
    out : str or Path. The file to write; zarr and lance: a new folder.
    to : str or None. A name in `pipeline.store.convert.layouts.EXPORTS`. None: by the suffix of
        `out`.
    ids : sequence of str, str, Path, or None. Rows to write, in this order, or a file for
        `read_ids`. None: all rows.
    repeat : int. npy only: number of copies of each row.
    copy : bool. h5 only: copy the rows instead of referring to the shards.
    compress : bool. h5 with `copy` or `ids` only: small gzip chunks.
    allow_failed : bool. Write failed rows as NaN or null instead of raising.
    dataset : str, Path or None. parquet, arrow and lance only: folder of the prepared dataset whose
        splits and captions become columns.
    url : str or None. kerchunk only: folder or URL where readers find the shards. None: where they
        are now.
    monitor : Monitor. Receives the progress.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    WrongUsage
        Arguments that do not match the layout.
    ShardError
        The rows do not fit the layout: an id with a line break (npy) or without a number (vqa),
        repeated ids (h5), rows that are not grids (vqa), too many ids (safetensors), or shards that
        are compressed (kerchunk).
    MissingPackage
        `to` is zarr or lance, and its package is not installed.
    OutputError
        `out` is a folder, or its folder is not writable; zarr and lance: it exists.
    MissingRows
        An id has no row, or is not an image or caption of the dataset.
    FailedRows
        Rows failed, and `allow_failed` is false.
    DamagedShard
        A row differs from its checksum.

    Examples
    --------
    >>> pipeline.export("data/features/mine/efficientnet-lite0-pool", "scenes.npy")
    24
    >>> np.load("scenes.npy").shape
    (24, 1280)
    """
    out = Path(out)
    to = to or layout_of(out)
    view = to == "h5" and not copy and ids is None
    if to not in EXPORTS:
        raise WrongUsage(f"unknown layout {to!r}; known: {', '.join(EXPORTS)}")
    if dataset is not None and to not in ("parquet", "arrow", "lance"):
        raise WrongUsage("`dataset=...` requires `to=parquet`, `to=arrow` or `to=lance`")
    if to == "kerchunk" and ids is not None:
        raise WrongUsage("`to=kerchunk` refers to all rows; write some with `to=h5` and `ids=...`")
    if url is not None and to != "kerchunk":
        raise WrongUsage("`url=...` requires `to=kerchunk`")
    if repeat > 1 and to != "npy":
        raise WrongUsage("`repeat=...` requires `to=npy`")
    if copy and to != "h5":
        raise WrongUsage("`copy=True` requires `to=h5`")
    if compress and (to != "h5" or view):
        raise WrongUsage("`compress=True` requires `to=h5` and `copy=True` or `ids=...`")
    features = features if isinstance(features, FeatureSet) else FeatureSet(features)
    if isinstance(ids, str | Path):
        ids = read_ids(ids)
    requested = features.ids if ids is None else ids
    with monitor.progress("export", "row") as progress:
        if to == "npy":
            export_npy(features, out, requested, repeat, allow_failed, progress)
        elif view:
            features.blocks(requested, allow_failed)
            export_h5_view(features, out)
        elif to == "h5":
            export_h5_copy(features, out, requested, allow_failed, compress, progress)
        elif to == "safetensors":
            export_safetensors(features, out, requested, allow_failed, progress)
        elif to == "kerchunk":
            _require_output(features, out)
            features.rows_to_read(requested, allow_failed)
            export_references(features, out, url)
        elif to == "zarr":
            # Imported here because pyarrow is slow to import.
            from pipeline.store.convert.cloud import export_zarr

            export_zarr(features, out, requested, allow_failed, progress)
        elif to in ("parquet", "arrow", "lance"):
            from pipeline.store.convert.cloud import export_lance
            from pipeline.store.convert.tables import export_table

            manifest = None if dataset is None else read_manifest(dataset)
            if to == "lance":
                export_lance(features, out, requested, manifest, allow_failed, progress)
            else:
                _require_output(features, out)
                export_table(features, out, requested, to, manifest, allow_failed, progress)
        else:
            export_vqa(features, out, requested, allow_failed, progress)
    return len(requested)


def layout_of(out: Path) -> str:
    """Return the layout of a file by its suffix."""
    if (to := SUFFIXES.get(out.suffix.lower())) is None:
        raise WrongUsage(
            f"{out} has none of the suffixes {', '.join(SUFFIXES)}; choose the layout with "
            f"`to=...` ({', '.join(EXPORTS)})"
        )
    return to


def export_npy(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    repeat: int = 1,
    allow_failed: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write an array for `np.load`, and next to it `NAME_ids.txt`, one id per line.

    `NAME.npy` has the rows as stored, (rows * repeat, *row_shape). A name that ends in `_ims.npy`
    selects the precomputed-image layout of VSE++ and SCAN: float32, (rows * repeat, dim), as
    `data.py` of VSE++ (github.com/fartashf/vsepp) loads it, or (rows * repeat, cells, channels) for
    a grid, cells row by row from the top left, as SCAN (github.com/kuanghuei/SCAN) loads regions.
    Line n of the text is the id of row n of the array; those programs use positions only. VSE++
    expects `repeat` 5, one consecutive copy per caption.
    """
    ids_file = out.with_name(out.name.removesuffix(".npy").removesuffix("_ims") + _IDS)
    for file in (out, ids_file):
        require_output_file(file)
    if broken := [row_id for row_id in ids if len(row_id.splitlines()) != 1]:
        raise ShardError(f"id {broken[0]!r} contains a line break and cannot be stored in {_IDS}")
    row, dtype = features.row_shape, stored_dtype(features.index.header)
    if out.name.endswith(_IMS):
        dtype = np.dtype("<f4")
        row = (int(np.prod(row[:-1])), row[-1]) if len(row) > 1 else row
    blocks = _counted(features.blocks(ids, allow_failed), len(ids), progress)
    with appearing_whole(ids_file) as ids_part, appearing_whole(out) as part:
        with part.open("wb") as stream:
            shape = (len(ids) * repeat, *row)
            described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, described)
            for block in blocks:
                stream.write(np.repeat(block.features.astype(dtype), repeat, axis=0).tobytes())
        with ids_part.open("w", encoding="utf-8", newline="\n") as text:
            text.writelines(f"{row_id}\n" * repeat for row_id in ids)


def export_h5_view(features: FeatureSet, out: Path) -> None:
    """Write a small HDF5 file that exposes all shards as one dataset.

    `features` is a virtual dataset over the shards by relative names; `ids`, `status`, `error`,
    `crc32` and `source_crc32` are copied. The file must stay next to the shards.
    """
    require_own_rows(features.folder)
    if (url := url_of(features.folder)) is not None:
        raise ShardError(
            f"{url} is not on this machine, so that HDF5 cannot refer to it; pass `copy=True`"
        )
    _require_output(features, out)
    header = features.index.header.renewed
    dtype = stored_dtype(header)
    shape, here = (len(features), *header.row_shape), out.absolute().parent
    # Not `VirtualLayout`, which stores the current time.
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    for entry in features.index.shards:
        relative = os.path.relpath(features.folder.absolute() / entry.file, here)
        rows = (entry.rows, *header.row_shape)
        target = h5py.h5s.create_simple(shape)
        target.select_hyperslab((entry.first_row, *(0 for _ in header.row_shape)), rows)
        source = h5py.h5s.create_simple(rows)
        creation.set_virtual(target, os.fsencode(relative), FEATURES.encode(), source)
    longest = max(len(row_id.encode()) for row_id in features.ids)
    needed = (_REST_BYTES + longest) * len(features)
    with with_room(out, needed) as part:
        with h5py.File(part, "w") as file:
            write_attributes(file, header.attributes())
            kind, space = h5py.h5t.py_create(dtype, logical=1), h5py.h5s.create_simple(shape)
            h5py.h5d.create(file.id, FEATURES.encode(), kind, space, creation)
            write_rows(file, header, {**vars(features), **features.sources})
        # HDF5 silently reads rows of a missing shard as zeros, so one row of each is read here.
        with h5py.File(part, "r") as file:
            for entry in features.index.shards:
                seen = file[FEATURES][entry.first_row]
                shard = ShardFile(features.folder / entry.file)
                if seen.tobytes() != shard.read_rows(np.array([0]))[0].tobytes():
                    raise ShardError(
                        f"{entry.file} is not readable through {out}; copy the rows instead"
                    )


def export_h5_copy(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    allow_failed: bool = False,
    compress: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write rows to one file that is itself a shard: the same datasets and attributes."""
    _require_output(features, out)
    if len(set(ids)) != len(ids):
        raise ShardError("some ids are requested twice; a shard has one row per id")
    blocks = _counted(features.blocks(ids, allow_failed), len(ids), progress)
    write_shard(out, features.index.header.renewed, ids, blocks, 0, 1, compress)


def export_safetensors(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    allow_failed: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write a safetensors file: tensor `features`, and the ids as a JSON list in its metadata.

    The metadata also holds `recipe`, `recipe_hash`, `weights`, `weights_sha256`, `axes`, `dataset`
    and `created_by`, as in the shards.
    """
    _require_output(features, out)
    header = features.index.header
    about = {k: v for k, v in header.attributes().items() if isinstance(v, str)}
    shape = [len(ids), *header.row_shape]
    size = len(ids) * header.row_bytes
    text = json.dumps(
        {
            "__metadata__": about | {"ids": canonical_json(list(ids))},
            "features": {
                "dtype": {"float32": "F32", "float16": "F16"}[header.dtype],
                "shape": shape,
                "data_offsets": [0, size],
            },
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    # Written directly, by the README of github.com/huggingface/safetensors: its own writer needs
    # all rows in memory. The tensor is aligned to 8 bytes.
    text += b" " * (-len(text) % 8)
    if len(text) > _SAFETENSORS_HEADER_BYTES:
        raise ShardError(
            f"{len(ids)} ids and the recipe are {len(text)} bytes; a safetensors header holds "
            f"{_SAFETENSORS_HEADER_BYTES}: export fewer rows, or another format"
        )
    blocks = _counted(features.blocks(ids, allow_failed), len(ids), progress)
    with appearing_whole(out) as part, part.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for block in blocks:
            stream.write(block.features.tobytes())


def export_vqa(
    features: FeatureSet,
    out: Path,
    ids: Sequence[str],
    allow_failed: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Write an HDF5 file for pytorch-vqa: `features` (N, C, H, W) float16, `ids` int32.

    The layout is that of github.com/Cyanogenoid/pytorch-vqa; rows are grids (H, W, C), and an id is
    the number at the end of a COCO file name, as in COCO_val2014_000000000042.jpg.
    """
    _require_output(features, out)
    if len(features.row_shape) != 3:
        raise ShardError(f"rows are {features.row_shape}, expected (y, x, channel); extract a grid")
    numbers = [_number(row_id) for row_id in ids]
    if len(set(numbers)) != len(numbers):
        raise ShardError("two ids end in the same number, which this layout cannot distinguish")
    blocks = _counted(features.blocks(ids, allow_failed), len(ids), progress)
    height, width, channels = features.row_shape
    needed = len(ids) * (int(np.prod(features.row_shape)) * 2 + 4)
    with with_room(out, max(1, needed)) as part, h5py.File(part, "w") as file:
        file.create_dataset("ids", data=np.array(numbers, np.int32), track_times=False)
        shape = (len(ids), channels, height, width)
        dataset = file.create_dataset("features", shape, np.float16, track_times=False)
        row = 0
        for block in blocks:
            with np.errstate(over="ignore"):
                half = block.features.astype(np.float16)
            if np.isinf(half).any():
                raise ShardError(f"values of a row from {row} on exceed the range of float16")
            dataset[row : row + len(block)] = half.transpose(0, 3, 1, 2)
            row += len(block)


def _counted(blocks: Iterator[RowBlock], total: int, progress: Progress) -> Iterator[RowBlock]:
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(done, total, 0)


def _require_output(features: FeatureSet, out: Path) -> None:
    require_output_file(out)
    names = {INDEX_FILE, *(entry.file for entry in features.index.shards)}
    if out.resolve() in {(features.folder / name).resolve() for name in names}:
        raise ShardError(f"{out} is a file of {features.folder}; choose another output")


def _number(row_id: str) -> int:
    match = re.search(r"(?<!\d)(\d{1,100})(\.\w+)?$", row_id)
    if match is None or int(match[1]) >= 1 << 31:
        raise ShardError(
            f"id {row_id!r} does not end in a 32-bit number, which this layout requires"
        )
    return int(match[1])
