"""The project's own file of word vectors: safetensors, restricted to a vocabulary, memory-mapped.

Two tensors, `matrix` (words, dim) float32 and `words` (the canonical JSON list of the words as
UTF-8 bytes), and one metadata entry, `vectors`: canonical JSON with the format version, the
source's name and SHA-256, its training datasets if known, and metadata of the vectors' origin.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store.files import parse_json
from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.text.vectors.table import VectorsError, WordVectors

SUFFIX = ".safetensors"
_FORMAT, _VERSION = "pipeline-vectors", 1
_KEY = "vectors"  # key of the metadata in the file


def save_vectors(
    path: Path, vectors: WordVectors, metadata: Mapping[str, Any] | None = None
) -> WordVectors:
    """Write word vectors, at least one, atomically, and return them as stored.

    Equal vectors, sources and metadata have equal bytes. Stored vectors are identified by the
    SHA-256 of the file; `source_sha256` keeps that of the source, also when they are stored again.
    `metadata` has further JSON values, such as the settings of a training.
    """
    if path.suffix != SUFFIX:
        raise VectorsError(f"{path}: the file name of stored word vectors must end in {SUFFIX}")
    if not vectors.words:
        raise VectorsError(
            f"{path}: {vectors.name!r} has none of the words to store; check that the vectors "
            "have the captions' language and case"
        )
    trained_on = {"trained_on": list(vectors.trained_on)} if vectors.trained_on else {}
    described = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "source": vectors.name,
        "source_sha256": vectors.source_sha256,
        "facts": dict(metadata or {}),
        **trained_on,
    }
    words = np.frombuffer(canonical_json(list(vectors.words)).encode(), dtype=np.uint8)
    matrix = vectors.matrix.astype("<f4", copy=False)
    write_tensors(path, {"matrix": matrix, "words": words}, _KEY, described)
    return read_stored(path, None)


def read_stored(path: Path, keep: frozenset[str] | None) -> WordVectors:
    """Return the words in `keep` of a stored file; all of them (None) stay memory-mapped."""
    with reading(path, "a file of stored word vectors", "store them again", VectorsError):
        described, words = describe_stored(path), stored_words(path)
        matrix, stored_from = _mapped(path), str(described["source_sha256"])
        trained_on = tuple(map(str, described.get("trained_on", ())))
    if described.get("format_version") != _VERSION or described.get("format") != _FORMAT:
        raise VectorsError(
            f"{path} has the format {described.get('format')!r}, version "
            f"{described.get('format_version')!r}, expected {_FORMAT!r}, version {_VERSION}; store "
            "the vectors again"
        )
    if not len(words) == len(set(words)) == len(matrix):
        raise VectorsError(
            f"{path} has {len(words)} words, {len(set(words))} of them distinct, and "
            f"{len(matrix)} vectors; store the vectors again"
        )
    if keep is not None and not keep.issuperset(words):
        rows = [row for row, word in enumerate(words) if word in keep]
        words, matrix = [words[row] for row in rows], matrix[rows]
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        bad = words[int(np.argmin(finite))]
        raise VectorsError(f"{path}: the vector of {bad!r} has NaN or infinite values")
    return WordVectors(
        path.stem, tuple(words), matrix, sha256_of_file(path), stored_from, trained_on
    )


def describe_stored(path: Path) -> dict[str, Any]:
    """Return the metadata of a stored file; raises as `read_metadata`."""
    return read_metadata(path, _KEY)


def stored_words(path: Path) -> list[str]:
    """Return the words of a stored file; raises as `read_metadata`."""
    words = parse_json(read_tensors(path, ["words"])["words"].tobytes().decode())
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise TypeError("its words are not a list of texts")
    return words


def _mapped(path: Path) -> npt.NDArray[np.float32]:
    # safetensors would copy the tensor into memory; the offsets in its header allow mapping it.
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        tensor = parse_json(stream.read(size))["matrix"]
    if tensor["dtype"] != "F32" or len(tensor["shape"]) != 2 or not tensor["shape"][1]:
        raise TypeError(f"its matrix is {tensor['dtype']} of shape {tensor['shape']}")
    if not tensor["shape"][0]:
        return np.empty(tensor["shape"], dtype=np.float32)
    start = 8 + size + tensor["data_offsets"][0]
    return np.asarray(np.memmap(path, "<f4", "r", start, tuple(tensor["shape"])))
