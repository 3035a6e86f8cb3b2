"""Sources of word vectors: a package, a file in a format found by its content, or a model."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.store.extras import require
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import require_downloaded
from pipeline.text.vectors.binary import read_binary
from pipeline.text.vectors.package import GLOVE_PACKAGE, read_package
from pipeline.text.vectors.plaintext import read_text
from pipeline.text.vectors.stored import SUFFIX, read_stored
from pipeline.text.vectors.table import VectorsError, WordVectors, collect

FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
"""The first four bytes of fastText models."""

SENTENCE_TRANSFORMER = "sentence-transformer:"
"""Prefix of sentence transformers, followed by a folder, a package or a name on the hub."""

_SUFFIXES = (".txt", ".vec", ".bin", SUFFIX)


def load_vectors(source: str, wanted: Collection[str] | None = None) -> WordVectors:
    """Load the vectors that `source` has for the words in `wanted` (None: all), in its order.

    `source` is one of

    - "glove-6b-50d";
    - a path ending in .txt or .vec: one word with its numbers per line, separated by single spaces
      (words may contain spaces), with the header of word2vec's and fastText's text formats or
      without it, as in Stanford's GloVe;
    - a path ending in .bin: word2vec's binary format, float32, or a fastText model, recognised by
      its magic number, which also has vectors for out-of-vocabulary words, the mean of their
      n-grams' vectors: they are last, sorted;
    - a path ending in .safetensors, which `save_vectors` wrote;
    - "sentence-transformer:" and a folder, a package or a name on the hub: each word without an
      unknown piece is encoded as a sentence of its own, sorted.

    Words are compared exactly: lower-cased tokens do not match capitalised words of a cased file. A
    file is streamed, and only requested rows are parsed and kept in memory; a fastText model is
    loaded as a whole, a stored file is memory-mapped. Equal repeats of a word count once; `notes`
    counts words that are left out since they are not UTF-8.

    Raises
    ------
    VectorsError
        The source is unknown, missing or damaged, a requested word has two different vectors, or
        all words of a sentence transformer are requested.
    EncoderError
        A sentence transformer cannot be loaded.
    """
    keep = None if wanted is None else frozenset(wanted)
    if source == GLOVE_PACKAGE:
        return read_package(keep)
    if source.startswith(SENTENCE_TRANSFORMER):
        return _encode_words(source.removeprefix(SENTENCE_TRANSFORMER), keep)
    path = Path(source)
    if path.suffix not in _SUFFIXES:
        raise VectorsError(
            f"the word vectors {source!r} are unknown; expected {GLOVE_PACKAGE!r}, "
            f"{SENTENCE_TRANSFORMER}MODEL, or a path ending in .txt or .vec (GloVe, word2vec or "
            f"fastText text), .bin (word2vec binary or a fastText model) or {SUFFIX} (made by "
            "`pipeline vectors`)"
        )
    if not path.is_file():
        raise VectorsError(
            f"{source}: no such file of word vectors; download it, "
            f"or use {GLOVE_PACKAGE!r}, which needs no download"
        )
    require_downloaded(path, VectorsError)
    if path.suffix == SUFFIX:
        return read_stored(path, keep)
    notes: Counter[str] = Counter()
    if path.suffix == ".bin" and _is_fasttext(path):
        words, matrix = _read_fasttext(path, keep, notes)
    else:
        dim, rows = (read_binary if path.suffix == ".bin" else read_text)(path, keep, notes)
        words, matrix = collect(path, dim, rows)
    return WordVectors(path.stem, words, matrix, sha256_of_file(path), notes=notes)


def lists_general_words(source: str) -> bool:
    """Return whether a source has a word list of its own, independent of any dataset."""
    return not source.startswith(SENTENCE_TRANSFORMER) and not source.endswith(SUFFIX)


def _encode_words(source: str, keep: frozenset[str] | None) -> WordVectors:
    if keep is None:
        raise VectorsError(
            f"the sentence transformer {source} has a vector for any word, but no word list; "
            "name the words, as `codebook_words=training` does for codebooks"
        )
    # Imported here: it imports torch, and only this source needs it.
    from pipeline.text.sentence_model import sentence_model

    model = sentence_model(source, None)
    pieces = model.pieces(sorted(keep))
    words = [w for w, p in zip(sorted(keep), pieces, strict=True) if {*p} - {model.unknown}]
    return WordVectors(
        model.name,
        tuple(words),
        model.encode_words(words),
        model.sha256,
        trained_on=model.trained_on,
    )


def _read_fasttext(
    path: Path, keep: frozenset[str] | None, notes: Counter[str]
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    require("fasttext_pybind", f"{path} is a fastText model and needs", ", or use the .vec file")
    from pipeline.text.vectors.subwords import read_subwords

    return read_subwords(path, keep, notes)


def _is_fasttext(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(FASTTEXT_MAGIC)) == FASTTEXT_MAGIC
