"""TRECVID 2016 Video to Text: Vine clips, each with one sentence in set A and one in set B.

All sentences of a set are ranked for each clip (papers/dong-2018, IV-F). The files are NIST's:
`vines.textDescription.A.testingSet` and `.B.testingSet`, with lines `<number> <sentence>`, and the
ground truth `vtt.gt`, with lines `<clip> <number in A> <number in B>`.
"""

from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import located_lines

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
    """Read the testing set of TRECVID 2016 Video to Text: 1,915 clips with two sentences each.

    A clip's id is its number in `vtt.gt`; clips are in the order of that file, in the split "test".

    Parameters
    ----------
    root : str or Path. Folder of the clips, `<number>.mp4`.
    captions : str or Path. Folder of `vines.textDescription.*.testingSet` and `vtt.gt`.
    subset : bool. Use the clips that exist and count the others; without this, a missing clip or
        another number of clips is an error.
    expect : mapping of str to int, or None. Required number of clips of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

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
    clips, found = ClipFiles(root, subset), Collector(root, "clips")
    files = [folder / f"vines.textDescription.{name}.testingSet" for name in SETS]
    sets, truth = [_sentences(file) for file in files], folder / "vtt.gt"
    used: dict[tuple[str, str], str] = {}
    for where, line in located_lines(truth):
        clip, *keys = line.split()
        if len(keys) != len(SETS):
            raise DatasetError(
                f"{where}: {line[:60]!r}; expected <clip> <number in A> <number in B>"
            )
        found.once(clip, where)
        texts = []
        for name, sentences, key in zip(SETS, sets, keys, strict=True):
            if key not in sentences:
                raise DatasetError(f"{where}: set {name} has no sentence {key}")
            if (before := used.setdefault((name, key), where)) != where:
                raise DatasetError(f"{where}: sentence {key} of set {name} repeats {before}")
            texts.append(found.caption(*sentences[key]))
        if (file := clips.find(clip, where)) is not None:
            found.add(clip, file, "test", texts, where)
    return found.manifest(
        "trecvid-vtt",
        [*files, truth],
        clips.expected(KNOWN_COUNTS, expect),
        source="TRECVID 2016 VTT, sets A and B",
        licence="clips belong to their Vine authors; sentences of NIST, for TRECVID's participants",
        notes=clips.notes(KNOWN_COUNTS),
    )


def _sentences(path: Path) -> dict[str, tuple[str, str]]:
    """Return each sentence of a set by its number, with its location."""
    sentences: dict[str, tuple[str, str]] = {}
    for where, line in located_lines(path):
        key, *rest = line.split(maxsplit=1)
        if not rest or key in sentences:
            raise DatasetError(f"{where}: {line[:60]!r}; expected <number> <sentence>, once")
        sentences[key] = rest[0], where
    return sentences
