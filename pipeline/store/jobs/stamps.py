"""Sizes and modification times of files, to detect unchanged files without reading them."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

Stamps = npt.NDArray[np.int64]

_KEY = "made_from"


def file_stamps(paths: Iterable[Path]) -> Stamps:
    """Return size in bytes and modification time of each file, (paths, 2); -1 if missing."""
    stamps: list[tuple[int, int]] = []
    last: Path | None = None
    for path in paths:
        # Consecutive rows may share a file, which costs one stat.
        if path != last:
            try:
                status = os.stat(path)  # noqa: PTH116 - a million of them
                stamp = status.st_size, status.st_mtime_ns
            except (OSError, ValueError):
                stamp = -1, -1
            last = path
        stamps.append(stamp)
    return np.array(stamps, np.int64).reshape(-1, 2)


def stamps_sha256(stamps: Stamps) -> str:
    """Return a digest of sizes and modification times."""
    return hashlib.sha256(stamps.tobytes()).hexdigest()


class StampRecord:
    """Stamps of the files of a finished set when they were last read.

    They are stored in the work folder, which is not shared: shards contain no time stamps.
    """

    def __init__(self, out: Path) -> None:
        """Store the folder of the set."""
        out = out.resolve()
        self._path = out.parent / WORK_FOLDER / f"{out.name}.stamps"

    def unchanged(self, build: ShardBuild, stamps: Stamps) -> npt.NDArray[np.bool_]:
        """Return which rows' files have the recorded stamps, (rows,) bool; False without them."""
        none = np.zeros(len(stamps), bool)
        if build.published is None:
            return none
        try:
            # Of other shards: a run without stamps has changed the set since.
            if read_metadata(self._path, _KEY)["content"] != build.published.content_sha256:
                return none
            recorded = read_tensors(self._path, ["stamps"])["stamps"]
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return none
        if recorded.shape != stamps.shape:
            return none
        return np.asarray((recorded == stamps).all(axis=1) & (stamps[:, 0] >= 0))

    def write(self, index: FeatureIndex, stamps: Stamps) -> None:
        """Record the stamps that the rows' files had before they were read."""
        self._path.parent.mkdir(exist_ok=True)
        write_tensors(self._path, {"stamps": stamps}, _KEY, {"content": index.content_sha256})
