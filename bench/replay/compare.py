"""Comparison of the files written by both sides."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bench.replay.explained import Explained
from bench.replay.places import places

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Difference:
    """One difference of a file.

    Attributes
    ----------
    path : str. Path of the file below the working folder.
    place : str. "only in base", "only in tree", or the differing attribute, dataset, key or line.
    detail : str. Both values, shortened.
    """

    path: str
    place: str
    detail: str = ""

    def explained_by(self, explanations: Iterable[Explained]) -> Explained | None:
        """Return the explanation that covers the difference, or None."""
        for known in explanations:
            if fnmatchcase(self.path, known.path) and fnmatchcase(self.place, known.place):
                return known
        return None

    def __str__(self) -> str:
        """Return path, place and detail in a line."""
        return f"{self.path}: {self.place}{f': {self.detail}' if self.detail else ''}"


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of files.

    Attributes
    ----------
    files, bytes : int. Number and size of the compared files of the tree.
    differences : list of Difference. All differences of files with an unexplained one.
    explained : list of Difference. Differences of the other files.
    """

    files: int
    bytes: int
    differences: list[Difference]
    explained: list[Difference]

    @property
    def differing_files(self) -> int:
        """Number of files with unexplained differences."""
        return len({found.path for found in self.differences})

    @property
    def explained_files(self) -> int:
        """Number of files with only explained differences."""
        return len({found.path for found in self.explained})


def outputs(folder: Path) -> dict[str, Stamp]:
    """Return the outputs below a folder: path, and a stamp that changes when the file is written.

    Work folders and lock files, whose path has a component with a leading dot, are excluded.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            state = path.stat()
            found[name.as_posix()] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def changed(before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> set[str]:
    """Return the files that were written, replaced or removed between two states."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def compare(
    base: Path, tree: Path, names: Iterable[str], explanations: Iterable[Explained]
) -> Comparison:
    """Compare files of the same names below two folders byte for byte.

    Parameters
    ----------
    base, tree : folders of both sides.
    names : relative paths; a file may be missing on either side, or on both.
    explanations : allowed differences.

    Returns
    -------
    Comparison
        Differences in the order in which the tree wrote the files: the first one is most often the
        cause of the others.
    """
    files = size = 0
    differences: list[Difference] = []
    explained: list[Difference] = []
    known = list(explanations)
    for name in sorted(names, key=lambda name: (_written(tree / name), name)):
        found = list(_differences(base, tree, name))
        if (tree / name).is_file():
            files, size = files + 1, size + (tree / name).stat().st_size
        covered = all(difference.explained_by(known) for difference in found)
        (explained if covered else differences).extend(found)
    return Comparison(files, size, differences, explained)


def _differences(base: Path, tree: Path, name: str) -> Iterator[Difference]:
    first, second = base / name, tree / name
    if first.is_file() != second.is_file():
        yield Difference(name, f"only in {'base' if first.is_file() else 'tree'}")
    elif first.is_file() and _sha256(first) != _sha256(second):
        for place, detail in places(first, second):
            yield Difference(name, place, detail)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
