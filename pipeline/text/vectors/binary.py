"""word2vec's binary format: a header, then each word, a space and its float32 numbers."""

import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.text.vectors.table import HEADER, MAX_DIM, Row, VectorsError, decoded

_MAX_WORD_BYTES = 1 << 16


def read_binary(
    path: Path, keep: frozenset[str] | None, notes: Counter[str]
) -> tuple[int, Iterator[Row]]:
    """Return the dimension and the rows of the words in `keep` (None: all), in file order."""
    with path.open("rb") as stream:
        first = stream.readline(64)
    header = HEADER.fullmatch(first.rstrip())
    count, dim = (int(header[1]), int(header[2])) if header else (0, 0)
    if count < 1 or not 1 <= dim <= MAX_DIM:
        raise VectorsError(
            f"{path}: starts with {first[:40]!r}, expected fastText's magic number or the header "
            "of word2vec's binary format: the number of words, a space, the dimension and a line "
            "break"
        )
    return dim, _rows(path, len(first), count, dim, keep, notes)


def _rows(
    path: Path, at: int, count: int, dim: int, keep: frozenset[str] | None, notes: Counter[str]
) -> Iterator[Row]:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number in range(1, count + 1):
            where = f"{path}, word {number} of {count}"
            space = data.find(b" ", at, at + _MAX_WORD_BYTES)
            end = space + 1 + 4 * dim
            if space < 0 or end > len(data):
                raise VectorsError(
                    f"{where}: expected a word, a space and {dim} float32 numbers, found only "
                    f"{len(data) - at} bytes; is the download complete?"
                )
            # The original tool ends each vector with a line break, others do not.
            word = decoded(data[at:space].lstrip(b"\n"), notes)
            at = end
            if word is not None and (keep is None or word in keep):
                vector = np.frombuffer(data[space + 1 : end], dtype="<f4").astype(np.float32)
                if not np.isfinite(vector).all():
                    raise VectorsError(f"{where} ({word!r}): has NaN or infinite values")
                yield word, f"word {number}", vector
        if data[at : at + 2] not in (b"", b"\n"):
            raise VectorsError(
                f"{path}: {len(data) - at} bytes after the last word; its header states "
                f"{count} words of dimension {dim}: is the header correct?"
            )
