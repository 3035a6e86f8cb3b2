"""TRECVID 2016 Video to Text: Vine clips, each with one sentence in set A and one in set B.

All sentences of a set are ranked for each clip (papers/dong-2018, IV-F). The files are NIST's:
`vines.textDescription.A.testingSet` and `.B.testingSet`, with lines `<number> <sentence>`, and the
ground truth `vtt.gt`, with lines `<clip> <number in A> <number in B>`.
"""

from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.source import caption_line, located_lines, source_notes

SETS = ("A", "B")
"""The sets of sentences: caption #0 of every clip is from A, caption #1 from B."""

KNOWN_COUNTS = {"test": 1_915}


def read_trecvid_vtt(
    root: str | Path,
    captions: str | Path,
    *,
    subset: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read the testing set with its ground truth, as the split "test".

    A clip's id is its number in `vtt.gt`; clips are in the order of that file.

    Parameters
    ----------
    root : str or Path. The folder of the clips, `<number>.mp4`.
    captions : str or Path. The folder of NIST's three files.
    subset : bool. Use the existing clips and count the others; otherwise a missing clip is an
        error, as is another number of clips than 1,915.
    expect : mapping of str to int, or None. Required number of clips by split.

    Raises
    ------
    DatasetError
        A file is missing, a line is malformed or repeats a number, a clip or a sentence is
        missing, or there is another number of clips. The line is named.

    Examples
    --------
    >>> pipeline.read_trecvid_vtt("trecvid/clips", "trecvid/captions")  # doctest: +SKIP
    """
    root, folder = Path(root), Path(captions)
    clips = ClipFiles(root, subset)
    files = [folder / f"vines.textDescription.{name}.testingSet" for name in SETS]
    sets = [_sentences(file) for file in files]
    truth = folder / "vtt.gt"
    entries: list[ImageEntry] = []
    used: dict[tuple[str, str], str] = {}
    mended = 0
    for where, line in located_lines(truth):
        fields = line.split()
        if len(fields) != 1 + len(SETS):
            raise DatasetError(
                f"{where}: {line[:60]!r}; expected <clip> <number in A> <number in B>"
            )
        texts = []
        for name, sentences, key in zip(SETS, sets, fields[1:], strict=True):
            if key not in sentences:
                raise DatasetError(f"{where}: set {name} has no sentence {key}")
            if (before := used.setdefault((name, key), where)) != where:
                raise DatasetError(f"{where}: sentence {key} of set {name} repeats {before}")
            text, location = sentences[key]
            texts.append(caption := caption_line(text, location))
            mended += caption != text
        if (file := clips.find(fields[0], where)) is not None:
            entries.append(ImageEntry(fields[0], file, "test", tuple(texts)))
    manifest = Manifest(
        name="trecvid-vtt",
        image_root=root,
        entries=tuple(entries),
        licence="clips belong to their Vine authors; sentences of NIST, for TRECVID's participants",
        source="TRECVID 2016 VTT, sets A and B",
        notes=source_notes([*files, truth], mended),
        media="clips",
    )
    manifest.notes.update(clips.check("trecvid-vtt", manifest.counts, KNOWN_COUNTS, expect or {}))
    return manifest


def _sentences(path: Path) -> dict[str, tuple[str, str]]:
    """Return each sentence of a set by its number, with its location."""
    sentences: dict[str, tuple[str, str]] = {}
    for where, line in located_lines(path):
        key, *rest = line.split(maxsplit=1)
        if not rest or key in sentences:
            raise DatasetError(f"{where}: {line[:60]!r}; expected <number> <sentence>, once")
        sentences[key] = rest[0], where
    return sentences
