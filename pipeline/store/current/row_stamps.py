"""Sizes and modification times of the rows' files, for `Storage.trust_stamps`: those not to reread.

They are stored in the work folder, which is not shared: shards contain no time stamps.
"""

from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.store.builder.locking import work_file
from pipeline.store.errors import FileReadError
from pipeline.store.own_files import DamagedFile, reading
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors

Stamps = npt.NDArray[np.int64]

_KEY, _SUFFIX = "made_from", ".stamps"


def unchanged_rows(
    out: Path, published: FeatureIndex | None, stamps: Stamps
) -> npt.NDArray[np.bool_]:
    """Return which rows' files have the stored stamps, (rows,) bool; `stamps` are (rows, 2)."""
    file, none = work_file(out, _SUFFIX), np.zeros(len(stamps), bool)
    with suppress(DamagedFile, FileReadError), reading(file, "a file of stamps", "delete it"):
        # Those of other shards do not count: a run without stamps has changed the set since.
        content = read_metadata(file, _KEY)["content"]
        if published is None or content != published.content_sha256:
            return none
        stored = read_tensors(file, ["stamps"])["stamps"]
        if stored.shape == stamps.shape:
            return np.asarray((stored == stamps).all(axis=1) & (stamps[:, 0] >= 0))
    return none


def store_stamps(out: Path, index: FeatureIndex, stamps: Stamps) -> None:
    """Store the stamps (rows, 2) that the rows' files had before they were read."""
    file = work_file(out, _SUFFIX)
    file.parent.mkdir(exist_ok=True)
    write_tensors(file, {"stamps": stamps}, _KEY, {"content": index.content_sha256})
