"""Reading source files with errors that name the file and the line or entry."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from pipeline.datasets.checks import DatasetError, check_caption, check_relative
from pipeline.store.hashing import sha256_of_file
from pipeline.store.inner_files import bytes_of, open_file
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.own_files import require_downloaded
from pipeline.store.schema import SchemaError, decode_given

UTF_8 = "utf-8"
_CONVERT = "convert the file to UTF-8 first"
_FORMS: tuple[Literal["NFC"], Literal["NFD"]] = ("NFC", "NFD")
_LINE_END = re.compile(r"\r\n|\r|\n")
T = TypeVar("T")


def read_lines(
    path: Path, encoding: str = UTF_8, remedy: str = _CONVERT, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a text file; BOMs are dropped.

    Lines end with a line feed, a carriage return, or both. `remedy` ends the message about a file
    in another encoding.
    """
    require_downloaded(path, DatasetError)
    try:
        with TextIOWrapper(open_file(path), encoding, errors) as stream:
            for number, line in enumerate(stream, start=1):
                # Also of files that are joined to one.
                yield number, line.removesuffix("\n").removeprefix("\ufeff")
    except UnicodeError as error:
        raise _undecodable(path, encoding, remedy) from error
    except OSError as error:
        raise DatasetError(
            f"{shown(path)} cannot be read ({error.strerror}); check the path"
        ) from error


def located_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (location such as "captions.csv, line 7", line) of the lines that are not blank."""
    for number, line in read_lines(path):
        if line.strip():
            yield f"{path}, line {number}", line


def read_text(path: Path, encoding: str = UTF_8, remedy: str = _CONVERT) -> str:
    """Return the text of a file as `read_lines`, lines joined by a line feed."""
    return "\n".join(line for _, line in read_lines(path, encoding, remedy))


def read_json(path: Path, kind: type[T]) -> T:
    """Parse a UTF-8 JSON file as a `kind`; errors name a value's path, such as `images[12].id`."""
    return parse_json(read_text(path), str(path), kind)


def parse_json(text: str, where: str, kind: type[T]) -> T:
    """Parse a JSON text from the location `where` as a `kind`."""
    try:
        return decode_given(text, kind)
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
            f"{where}: {unit} {file!r} not found below {root}{in_other_form(root, file)}; check "
            "the folder, or remove the entry"
        )
    return PurePosixPath(file).as_posix()


def in_other_form(root: Path, file: str) -> str:
    """Return a hint at a file whose name is the same text, in another normal form of Unicode."""
    for form in _FORMS:
        other = unicodedata.normalize(form, file)
        if other != file and (root / other).is_file():
            return f", but its name in Unicode's form {form} is there; write both in one form"
    return ""


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


def source_notes(files: Iterable[Path]) -> dict[str, Any]:
    """Return the notes of every reader on its source files."""
    return {"source_files": list(map(_source_note, files))}


def caption_notes(changed: int, captions: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return how many captions a reader changed, and how many are equal to others of an image."""
    notes = {
        "captions_with_blanks_cut_or_lines_joined": changed,
        "captions_equal_to_others_of_their_image": sum(
            len(texts) - len(set(texts)) for texts in captions
        ),
    }
    return {name: count for name, count in notes.items() if count}


def _source_note(file: Path) -> dict[str, Any]:
    """Return the name of a file and its SHA-256; of an object, which is not read, its version."""
    if (url := url_of(file)) is None:
        return {"file": file.name, "sha256": sha256_of_file(file)}
    # Imported for URLs alone: it takes 0.05 s.
    from pipeline.store.objects.sources import facts

    try:
        known = facts(url)
    except FileNotFoundError as error:
        raise DatasetError(f"{shown(file)} does not exist; check the URL") from error
    return {"file": file.name, "bytes": known.size, "version": known.version}


def _undecodable(path: Path, encoding: str, remedy: str) -> DatasetError:
    """Return the error of a file that is not in its encoding, with the line of the first byte."""
    data = bytes_of(path)
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="replace")
        number = len(_LINE_END.findall(before)) + 1
        return DatasetError(
            f"{path}, line {number}: byte {error.start + 1} of the file is not {encoding} "
            f"({error.reason}); {remedy}"
        )
    except UnicodeError as error:  # such as UTF-16 without a byte order mark
        return DatasetError(f"{path} is not {encoding} ({error}); {remedy}")
    return DatasetError(f"{path} changed while it was read; rerun the command")
