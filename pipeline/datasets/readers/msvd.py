"""MSVD, the Microsoft Video Description corpus: YouTube clips with about 40 sentences each.

Clips are numbered vid1 to vid1970 by the list `youtube_mapping.txt` of the corpus; the usual splits
(Venugopalan et al. 2015; papers/dong-2018, IV-A) are the first 1,200, the next 100 and the last
670.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import located_lines

KNOWN_COUNTS = {"train": 1_200, "val": 100, "test": 670}

_LAST_OF_SPLIT = {"train": 1_200, "val": 1_300, "test": 1_970}
_COLUMNS = ("file", "id", "caption")


class _Line(NamedTuple):
    clip: str
    number: int
    split: str
    caption: str
    where: str


def read_msvd(
    root: str | Path,
    captions: str | Path,
    *,
    mapping: str | Path | None = None,
    subset: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read MSVD: all its sentences, and the splits of 1,200, 100 and 670 clips.

    A clip's id has the form "vid98"; clips are ordered by number, sentences in file order.

    Parameters
    ----------
    root : str or Path. Folder of the clips, `<YouTube id>_<start>_<end>.avi`.
    captions : str or Path. `AllVideoDescriptions.txt`, one line `<clip> <sentence>` per sentence,
        which needs the mapping; or a tab-separated table with the columns file, id (vid98), caption
        and optionally split, which must be that of the clip's number.
    mapping : str, Path or None. `youtube_mapping.txt`, one line `<clip> vid<number>` per clip.
    subset : bool. Use the clips that exist and count the others; without this, a missing clip or an
        unexpected split size is an error.
    expect : mapping of str to int, or None. Required number of clips of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        A file is missing, a line is malformed or contradicts another, a clip is missing, or a
        split has another number of clips. The line is named.

    Examples
    --------
    >>> pipeline.read_msvd(
    ...     "msvd/clips", "AllVideoDescriptions.txt", mapping="youtube_mapping.txt"
    ... )  # doctest: +SKIP
    """
    root, captions = Path(root), Path(captions)
    clips, found = ClipFiles(root, subset), Collector(root, "clips")
    files = [captions, *([Path(mapping)] if mapping else [])]
    first: dict[int, _Line] = {}
    texts: dict[int, list[str]] = {}
    for line in _descriptions(captions, _numbers(Path(mapping))) if mapping else _table(captions):
        if first.setdefault(line.number, line).clip != line.clip:
            raise DatasetError(
                f"{line.where}: vid{line.number} is {line.clip!r} here and "
                f"{first[line.number].clip!r} in {first[line.number].where}; a number has one clip"
            )
        texts.setdefault(line.number, []).append(found.caption(line.caption, line.where))
    for number, line in sorted(first.items()):
        if (file := clips.find(line.clip, line.where)) is not None:
            found.add(f"vid{number}", file, line.split, texts[number], line.where)
    return found.manifest(
        "msvd",
        files,
        clips.expected(KNOWN_COUNTS, expect),
        source=f"MSVD sentences {captions.name}",
        licence="clips belong to their YouTube authors; sentences for research",
        notes=clips.notes(KNOWN_COUNTS),
    )


def _split_of(number: int, where: str) -> str:
    for split, last in _LAST_OF_SPLIT.items():
        if 1 <= number <= last:
            return split
    raise DatasetError(f"{where}: vid{number} is not a clip of MSVD, which has vid1 to vid1970")


def _number(text: str, where: str) -> int:
    if not (match := re.fullmatch(r"vid([0-9]{1,6})", text)):
        raise DatasetError(f"{where}: {text!r} is not a clip number such as vid98")
    return int(match[1])


def _table(path: Path) -> Iterator[_Line]:
    """Yield the lines of a tab-separated table with a header and without quotes."""
    lines = located_lines(path)
    where, line = next(lines, (str(path), ""))
    header = line.split("\t")
    if not {*_COLUMNS} <= {*header}:
        raise DatasetError(
            f"{where}: the header is {line[:80]!r}, expected {', '.join(_COLUMNS)}, separated by "
            "tabs (for AllVideoDescriptions.txt also pass `mapping=...`)"
        )
    for where, line in lines:
        values = line.split("\t")
        if len(values) != len(header):
            raise DatasetError(f"{where}: {len(values)} fields found, {len(header)} expected")
        row = dict(zip(header, values, strict=True))
        number = _number(row["id"], where)
        split = _split_of(number, where)
        if row.get("split", split) != split:
            raise DatasetError(
                f"{where}: vid{number} has split {row['split']!r}; its number makes it {split!r}"
            )
        yield _Line(row["file"], number, split, row["caption"], where)


def _numbers(path: Path) -> dict[str, int]:
    """Return the number of each clip of `youtube_mapping.txt`."""
    numbers: dict[str, int] = {}
    for where, line in located_lines(path):
        if len(fields := line.split()) != 2 or fields[0] in numbers:
            raise DatasetError(f"{where}: {line[:60]!r}; expected <clip> vid<number>, once")
        numbers[fields[0]] = _number(fields[1], where)
    return numbers


def _descriptions(path: Path, numbers: Mapping[str, int]) -> Iterator[_Line]:
    """Yield the lines of `AllVideoDescriptions.txt`, which begins with comments."""
    for where, line in located_lines(path):
        if line.startswith("#"):
            continue
        clip, _, caption = line.partition(" ")
        if clip not in numbers:
            raise DatasetError(f"{where}: clip {clip!r} has no number in the mapping")
        yield _Line(clip, numbers[clip], _split_of(numbers[clip], where), caption, where)
