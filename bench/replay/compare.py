"""The files that both sides wrote: which differ, and where."""

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
    """One place where a file differs.

    Attributes
    ----------
    path : str. Of the file below the working folder.
    place : str. "only in base", or what differs: an attribute, a dataset, a key, a line.
    detail : str. Both values, in short.
    """

    path: str
    place: str
    detail: str = ""

    def explained_by(self, explanations: Iterable[Explained]) -> Explained | None:
        """Return the explanation that covers the difference, None if there is none."""
        for known in explanations:
            if fnmatchcase(self.path, known.path) and fnmatchcase(self.place, known.place):
                return known
        return None

    def __str__(self) -> str:
        """Return path, place and detail in a line."""
        return f"{self.path}: {self.place}{f': {self.detail}' if self.detail else ''}"


@dataclass(frozen=True)
class Comparison:
    """What the comparison of some files found.

    Attributes
    ----------
    files, bytes : int. Compared, of the tree's side.
    differences : list of Difference. Of files with a difference that is not explained: all.
    explained : list of Difference. Of the other files that differ.
    """

    files: int
    bytes: int
    differences: list[Difference]
    explained: list[Difference]

    @property
    def differing_files(self) -> int:
        """Number of files with differences that are not explained."""
        return len({found.path for found in self.differences})

    @property
    def explained_files(self) -> int:
        """Number of files whose differences are all explained."""
        return len({found.path for found in self.explained})


def outputs(folder: Path) -> dict[str, Stamp]:
    """Return the outputs below a folder: path and a stamp that changes when a file is written.

    Work folders and lock files have names with a leading dot, or are in such folders, and do not
    count as outputs.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            state = path.stat()
            found[name.as_posix()] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def changed(before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> set[str]:
    """Return the files that were written, replaced or removed in between."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def compare(
    base: Path, tree: Path, names: Iterable[str], explanations: Iterable[Explained]
) -> Comparison:
    """Compare files of the same names below two folders byte for byte.

    Parameters
    ----------
    base, tree : folders of the two sides.
    names : relative paths; a file may be missing on either side, or on both.
    explanations : what may differ.

    Returns
    -------
    Comparison
        Differences in the order in which the tree's side wrote the files: what differs first is
        most often why others do.
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
