"""MSVD, the Microsoft Video Description corpus: YouTube clips with about 40 sentences each.

Clips are numbered vid1 to vid1970 by the list `youtube_mapping.txt` of the corpus; the usual splits
(Venugopalan et al. 2015; papers/dong-2018, IV-A) are the first 1,200, the next 100 and the last
670.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.source import caption_line, located_lines, read_lines, source_notes

KNOWN_COUNTS = {"train": 1_200, "val": 100, "test": 670}

_LAST_OF_SPLIT = {"train": 1_200, "val": 1_300, "test": 1_970}
_COLUMNS = ("file", "id", "caption")


@dataclass(frozen=True)
class _Line:
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
    """Read MSVD's sentences and splits.

    A clip's id is its number, as in "vid98"; clips are ordered by number, sentences, all of them,
    in file order.

    Parameters
    ----------
    root : str or Path. The folder of the clips, `<YouTube id>_<start>_<end>.avi`.
    captions : str or Path. `AllVideoDescriptions.txt`, one line `<clip> <sentence>` per sentence,
        with `mapping`; or a tab-separated table with the columns file, id (vid98), caption and
        optionally split, which must match the number.
    mapping : str, Path or None. `youtube_mapping.txt`, one line `<clip> vid<number>` per clip.
    subset : bool. Use the existing clips and count the others; otherwise a missing clip is an
        error, as are split sizes other than 1,200, 100 and 670.
    expect : mapping of str to int, or None. Required number of clips by split.

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
    clips = ClipFiles(root, subset)
    read = [captions]
    if mapping is None:
        lines = _table(captions)
    else:
        read.append(Path(mapping))
        lines = _descriptions(captions, _numbers(Path(mapping)))
    first: dict[int, _Line] = {}
    texts: dict[int, list[str]] = {}
    mended = 0
    for line in lines:
        if first.setdefault(line.number, line).clip != line.clip:
            raise DatasetError(
                f"{line.where}: vid{line.number} is {line.clip!r} here and "
                f"{first[line.number].clip!r} in {first[line.number].where}; a number has one clip"
            )
        caption = caption_line(line.caption, line.where)
        mended += caption != line.caption
        texts.setdefault(line.number, []).append(caption)
    entries = []
    for number, line in sorted(first.items()):
        if (file := clips.find(line.clip, line.where)) is not None:
            entries.append(ImageEntry(f"vid{number}", file, line.split, tuple(texts[number])))
    manifest = Manifest(
        name="msvd",
        image_root=root,
        entries=tuple(entries),
        licence="clips belong to their YouTube authors; sentences for research",
        source=f"MSVD sentences {captions.name}",
        notes=source_notes(read, mended),
        media="clips",
    )
    manifest.notes.update(clips.check("msvd", manifest.counts, KNOWN_COUNTS, expect or {}))
    return manifest


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
    header: list[str] | None = None
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        values = line.split("\t")
        if header is None:
            header = values
            if not {*_COLUMNS} <= {*header}:
                raise DatasetError(
                    f"{where}: the header is {line[:80]!r}, expected {', '.join(_COLUMNS)}, "
                    "separated by tabs (for AllVideoDescriptions.txt also pass `mapping=...`)"
                )
            continue
        if not line.strip():
            continue
        if len(values) != len(header):
            raise DatasetError(f"{where}: {len(values)} fields found, {len(header)} expected")
        row = dict(zip(header, values, strict=True))
        vid = _number(row["id"], where)
        split = _split_of(vid, where)
        if row.get("split", split) != split:
            raise DatasetError(
                f"{where}: vid{vid} has split {row['split']!r}; its number makes it {split!r}"
            )
        yield _Line(row["file"], vid, split, row["caption"], where)


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
