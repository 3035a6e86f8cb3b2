"""Decoding of text files: UTF-8, UTF-16 and UTF-32 with a byte order mark, or as specified."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.source import read_lines

UTF_8 = "utf-8"

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, UTF_8),
)
_REMEDY = "state its encoding, for example `encoding=cp1252`, or convert the file to UTF-8"


def check_encoding(name: str) -> str | None:
    """Return the reason why `name` is not a text encoding; None if it is."""
    try:
        "x".encode(name)
    except (LookupError, ValueError):
        return "is not an encoding that Python knows, such as utf-16, cp1252, latin-1 or shift_jis"
    return None


def encoding_of(path: Path, stated: str | None = None) -> str:
    """Return the encoding of a file: by byte order mark, else as specified, else UTF-8."""
    if stated is not None and (reason := check_encoding(stated)):
        raise DatasetError(f"the encoding {stated!r} {reason}")
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    name = marked or codecs.lookup(stated or UTF_8).name
    return UTF_8 if name == "utf-8-sig" else name


def text_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end); a byte order mark is dropped."""
    if encoding == UTF_8:
        yield from read_lines(path, remedy=_REMEDY)
        return
    try:
        with path.open(encoding=encoding) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, line.removesuffix("\n")
    except UnicodeError as error:
        raise _undecodable(path, encoding) from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error


def whole_text(path: Path, encoding: str) -> str:
    """Return the text of a file, lines joined by a line feed."""
    return "\n".join(line for _, line in text_lines(path, encoding))


def _undecodable(path: Path, encoding: str) -> DatasetError:
    data = path.read_bytes()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        number = data[: error.start].decode(encoding, errors="replace").count("\n") + 1
        return DatasetError(
            f"{path}, line {number}: byte {error.start + 1} of the file is not {encoding} "
            f"({error.reason}); state the right one with `encoding=...`"
        )
    except UnicodeError as error:
        return DatasetError(
            f"{path} is not {encoding} ({error}); state another with `encoding=...`"
        )
    return DatasetError(f"{path} changed while it was read; rerun the command")
