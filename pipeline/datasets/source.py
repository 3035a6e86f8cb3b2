"""Reading source files so that every complaint names the file and the line."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.datasets.manifest import DatasetError, check_relative


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 text file; a BOM is dropped.

    Raises
    ------
    DatasetError
        The file is missing, or a line is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"{path}, line {number}: byte {error.start + 1} of the line is not UTF-8; convert "
                "the file to UTF-8 first"
            ) from error


def image_file(root: Path, file: str, where: str) -> str:
    """Return `file` if it names an existing file below `root`.

    Parameters
    ----------
    root : the image root.
    file : a path from a data file, relative to `root`.
    where : the place of `file` in its source, such as "captions.csv, line 7".

    Raises
    ------
    DatasetError
        The path leaves the root, or there is no such file.
    """
    if fault := check_relative(file):
        raise DatasetError(f"{where}: image path {file!r} {fault}; paths must stay below {root}")
    if not (root / file).is_file():
        raise DatasetError(
            f"{where}: image {file!r} not found below {root}; check --root, or remove the line"
        )
    return file
