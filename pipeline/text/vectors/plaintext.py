"""Text formats of GloVe, word2vec and fastText: one word with its numbers per line.

GloVe's files start with the first word. word2vec's text and fastText's `.vec` start with a header,
the number of words and the dimension; both end every line with a space.
"""

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.text.vectors.table import HEADER, MAX_DIM, Row, VectorsError, decoded

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_LINE_END = b" \r\n"


def read_text(
    path: Path, keep: frozenset[str] | None, notes: Counter[str]
) -> tuple[int, Iterator[Row]]:
    """Return the dimension and the rows of the words in `keep` (None: all), in file order.

    A first line of two integers is a header; a one-dimensional GloVe file that starts with a
    number is therefore misread. Lines are parsed from the right, since words may contain spaces.
    """
    with path.open("rb") as stream:
        first = stream.readline().removeprefix(BOM_UTF8).rstrip(_LINE_END)
    header = HEADER.fullmatch(first)
    if header is None:
        dim, count = first.count(b" "), None
    else:
        count, dim = int(header[1]), int(header[2])
    if count == 0 or not 1 <= dim <= MAX_DIM:
        start = f"{dim} spaces" if header is None else f"the header {first.decode()!r}"
        raise VectorsError(
            f"{path}, line 1: found {start}, expected a word and its numbers separated by "
            "single spaces (GloVe text), or a header of the number of words and the dimension "
            "(word2vec or fastText text)"
        )
    return dim, _rows(path, dim, count, keep, notes)


def _rows(
    path: Path, dim: int, count: int | None, keep: frozenset[str] | None, notes: Counter[str]
) -> Iterator[Row]:
    # Splitting dominates the cost, so a line is split only if its first field starts a word to
    # keep, or if it has more fields than the rest.
    starts = None if keep is None else {word.encode().split(b" ", 1)[0] for word in keep}
    header_lines = 0 if count is None else 1
    blank = 0
    words = 0
    with path.open("rb") as stream:
        for _ in range(header_lines):
            stream.readline()
        for number, raw in enumerate(stream, 1 + header_lines):
            line = (raw if number > 1 else raw.removeprefix(BOM_UTF8)).rstrip(_LINE_END)
            if not line:
                blank = blank or number
                continue
            if blank:
                raise VectorsError(
                    f"{path}, line {blank}: is blank in the middle of the file, expected a word "
                    f"and {dim} numbers"
                )
            words += 1
            spaces = line.count(b" ")
            if spaces < dim:
                raise VectorsError(
                    f"{path}, line {number}: {spaces} numbers found, {dim} expected as on line 1; "
                    "is the download complete?"
                )
            start = line[: line.index(b" ")]
            if spaces == dim and starts is not None and start not in starts:
                decoded(start, notes)
                continue
            fields = line.rsplit(b" ", dim)
            word = decoded(fields[0], notes)
            if spaces > dim and _is_number(fields[0].rsplit(b" ", 1)[1]):
                raise VectorsError(
                    f"{path}, line {number}: more than {dim} numbers found, {dim} expected as on "
                    "line 1"
                )
            if word is not None and (keep is None or word in keep):
                yield word, f"line {number}", _vector(fields[1:], f"{path}, line {number}")
    if count is not None and abs(words - count) == 1:  # as tools write that count otherwise
        notes["words more or fewer than the header states"] = 1
    elif count is not None and words != count:
        raise VectorsError(
            f"{path}: {words} words found, {count} stated in its header; is the download complete?"
        )


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
