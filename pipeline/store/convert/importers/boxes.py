"""Boxes by image from external files: bottom-up TSV, NPZ, HDF5 groups, or COCO results in JSON."""

import base64
import tokenize
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import msgspec
import numpy as np

from pipeline.store.convert.importers.groups import datasets_by_group
from pipeline.store.convert.importers.source import require_unbroken_groups
from pipeline.store.files import require_held
from pipeline.store.schema import decode_given
from pipeline.store.shards.format import ShardError

Boxes = dict[str, tuple[np.ndarray, np.ndarray]]
"""Boxes (k, 4) float32, x0 y0 x1 y1, and scores (k,) float32, best first, by image id."""

_Table = tuple[str, str, np.ndarray, np.ndarray | None]
_TSV_COLUMNS, _ID, _COUNT, _BOXES = 6, 0, 3, 4
_MOST_BYTES = 1 << 26  # per image
# numpy parses headers as Python, so a corrupt one raises these too.
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    SyntaxError,
    EOFError,
    MemoryError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_boxes(path: str | Path) -> Boxes:
    """Read the boxes of each image, sorted by score, best first, ties in file order.

    By the suffix of `path`: .tsv, columns of bottom-up attention (features are not read); .npz, an
    array (k, 4), or (k, 5) with a score in the last column, by image id; .h5 or .hdf5,
    `<image id>/boxes` and optionally `<image id>/scores`; .json, a list of
    `{"image_id", "bbox": [x, y, width, height], "score"}`, as detectron and COCO write results.
    Boxes without scores are scored by their rank, from 1 down.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise ShardError(f"{path}: expected boxes as {', '.join(_READERS)}; convert the file")
    by_image: Boxes = {}
    try:
        for image, where, boxes, scores in _READERS[suffix](path):
            checked = _checked(boxes, scores, where)
            same = zip(by_image.setdefault(image, checked), checked, strict=True)
            if not all(np.array_equal(*arrays) for arrays in same):
                raise ShardError(f"{where}: image {image!r} occurs twice; merge its boxes")
    except _UNREADABLE as error:
        raise ShardError(f"{path} is not a readable {suffix} file of boxes ({error})") from error
    if not by_image:
        raise ShardError(f"{path} has no boxes")
    return by_image


def _checked(
    boxes: np.ndarray, scores: np.ndarray | None, where: str
) -> tuple[np.ndarray, np.ndarray]:
    # An archive may contain files that are not arrays, and HDF5 empty datasets.
    for array in (boxes, scores):
        if not isinstance(array, np.ndarray | None):
            raise ShardError(f"{where}: found {array!r:.50}, expected arrays of boxes and scores")
    if boxes.ndim != 2 or boxes.shape[1] not in (4, 5):
        raise ShardError(f"{where}: boxes of shape {boxes.shape}, expected (k, 4) or (k, 5)")
    if boxes.shape[1] == 5:
        scores = boxes[:, 4]
    if scores is None:
        scores = np.linspace(1, 0, len(boxes), endpoint=False)
    if scores.shape != (len(boxes),):
        raise ShardError(f"{where}: scores of shape {scores.shape} for {len(boxes)} boxes")
    table = np.concatenate([boxes[:, :4], scores[:, None]], axis=1).astype(np.float32)
    if not np.isfinite(table).all():
        raise ShardError(f"{where}: NaN or infinity among the boxes or scores")
    table = table[np.argsort(-table[:, 4], kind="stable")]
    return table[:, :4], table[:, 4]


def _tsv(path: Path) -> Iterator[_Table]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            where = f"{path}, line {number}"
            fields = line.removeprefix(BOM_UTF8).rstrip(b"\r\n").split(b"\t")
            if len(fields) != _TSV_COLUMNS:
                raise ShardError(
                    f"{where}: found {len(fields)} columns, expected image_id, image_w, image_h, "
                    "num_boxes, boxes and features, separated by tabs"
                )
            try:
                numbers = np.frombuffer(base64.b64decode(fields[_BOXES], validate=True), "<f4")
                boxes = numbers.reshape(int(fields[_COUNT]), 4)
            except ValueError as error:
                raise ShardError(f"{where}: boxes are not base64 ({error})") from error
            yield fields[_ID].decode(), where, boxes, None


def _npz(path: Path) -> Iterator[_Table]:
    with zipfile.ZipFile(path) as members:
        for member in members.infolist():
            if member.file_size > _MOST_BYTES:
                raise ShardError(
                    f"{path}: {member.filename} unpacks to {member.file_size:,} bytes, expected at "
                    f"most {_MOST_BYTES:,} per image"
                )
    with np.load(path, allow_pickle=False) as arrays:
        for image in arrays.files:
            yield image, f"{path}: {image}", arrays[image], None


def _hdf5(path: Path) -> Iterator[_Table]:
    require_unbroken_groups(path, _read_all)
    yield from _groups(path)


def _read_all(path: Path) -> None:
    for _ in _groups(path):
        pass


def _groups(path: Path) -> Iterator[_Table]:
    def refuse(line: str) -> None:
        raise ShardError(f"{line}; write boxes into each group, and copies in place of links")

    with h5py.File(path, "r") as file:
        for image, boxes in datasets_by_group(file, "boxes", refuse).items():
            group = file[image]
            scores = require_held(group["scores"])[()] if "scores" in group else None
            yield image, f"{path}: {image}", require_held(boxes)[()], scores


class _Result(msgspec.Struct):
    """An entry of COCO's results; other fields, such as `category_id`, are ignored."""

    image_id: str | int
    bbox: tuple[float, float, float, float]
    score: float


def _json(path: Path) -> Iterator[_Table]:
    try:
        results = decode_given(path.read_bytes(), list[_Result])
    except ValueError as error:
        raise ShardError(
            f'{path} is not a list of results ({error}); expected {{"image_id", "bbox": [x, y, '
            'width, height], "score"}}'
        ) from error
    by_image: dict[str, list[list[float]]] = {}
    for result in results:
        x, y, width, height = result.bbox
        row = [x, y, x + width, y + height, result.score]
        by_image.setdefault(str(result.image_id), []).append(row)
    for image, rows in by_image.items():
        yield image, f"{path}: image {image}", np.array(rows), None


_READERS: dict[str, Callable[[Path], Iterator[_Table]]] = {
    ".tsv": _tsv,
    ".npz": _npz,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".json": _json,
}
