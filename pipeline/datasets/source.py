"""Reading source files with errors that name the file and the line or entry."""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pipeline.datasets.checks import DatasetError, check_caption, check_relative
from pipeline.store.hashing import sha256_of_file
from pipeline.store.schema import SchemaError, decode

_BOM = b"\xef\xbb\xbf"
_CONVERT = "convert the file to UTF-8 first"
T = TypeVar("T")


def read_lines(path: Path, remedy: str = _CONVERT) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 text file; a BOM is dropped.

    `remedy` ends the message about a file in another encoding.
    """
    number = 0
    try:
        with path.open("rb") as stream:
            for read in stream:
                # More than one for files with carriage returns as line ends.
                for line in (read.removeprefix(_BOM) if number == 0 else read).splitlines():
                    number += 1
                    yield number, _decode(line, path, number, remedy)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error


def located_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (location such as "captions.csv, line 7", line) of the lines that are not blank."""
    for number, line in read_lines(path):
        if line.strip():
            yield f"{path}, line {number}", line


def read_json(path: Path, kind: type[T]) -> T:
    """Parse a UTF-8 JSON file as a `kind`; errors name a value's path, such as `images[12].id`."""
    data = _read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        number = data.count(b"\n", 0, error.start) + 1
        text = _decode(data[start:].split(b"\n", 1)[0], path, number)
    return parse_json(text, str(path), kind)


def parse_json(text: str, where: str, kind: type[T]) -> T:
    """Parse a JSON text from the location `where` as a `kind`."""
    try:
        return decode(text, kind)
    except SchemaError as error:
        raise DatasetError(f"{where}: {error}; correct the file, or download it again") from error


def media_file(root: Path, file: str, where: str, unit: str = "image") -> str:
    """Return `file` in normal form (`./a.jpg` is `a.jpg`); raise unless it exists below `root`."""
    if reason := check_relative(file):
        raise DatasetError(f"{where}: {unit} path {file!r} {reason}; paths must stay below {root}")
    try:
        exists = (root / file).is_file()
    except OSError as error:
        raise DatasetError(
            f"{where}: {unit} path {file!r} cannot be accessed below {root} ({error.strerror})"
        ) from error
    if not exists:
        raise DatasetError(
            f"{where}: {unit} {file!r} not found below {root}; check the folder, or remove the "
            "entry"
        )
    return PurePosixPath(file).as_posix()


def caption_line(text: str, where: str) -> str:
    """Return a caption as one line, like `one_line`; raise if it is empty or invalid."""
    line = one_line(text)
    if reason := check_caption(line):
        raise DatasetError(f"{where}: the caption {reason}")
    return line


def one_line(text: str) -> str:
    """Return a text stripped, each line break replaced by a space; nothing else is changed."""
    if text.isprintable():  # no line break, as in most captions
        return text.strip()
    return " ".join(part.strip() for part in text.splitlines() if part.strip())


def source_notes(files: Iterable[Path], mended: int) -> dict[str, Any]:
    """Return the notes of every reader: source files, and how many captions it changed, if any."""
    notes: dict[str, Any] = {
        "source_files": [{"file": f.name, "sha256": sha256_of_file(f)} for f in files]
    }
    if mended:
        notes["captions_with_blanks_cut_or_lines_joined"] = mended
    return notes


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(_BOM)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error


def _decode(line: bytes, path: Path, number: int, remedy: str = _CONVERT) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}, line {number}: byte {error.start + 1} of the line is not UTF-8; {remedy}"
        ) from error
