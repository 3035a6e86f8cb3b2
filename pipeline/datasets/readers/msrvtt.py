"""MSR-VTT (Xu et al., CVPR 2016): clips with 20 sentences each, in the corpus's own JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError, check_split
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.source import caption_line, read_json, source_notes

KNOWN_COUNTS = {"train": 6_513, "val": 497, "test": 2_990}

_SPLITS = {"validate": "val"}


def read_msrvtt(
    root: str | Path,
    captions: Sequence[str | Path],
    *,
    subset: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read files such as `train_val_videodatainfo.json` and `test_videodatainfo.json`.

    A clip's id is its `video_id`; clips are in the order of `videos`, sentences, all of them, in
    that of `sentences`. The split "validate" becomes "val".

    Parameters
    ----------
    root : str or Path. The folder of the clips, `<video_id>.mp4`.
    captions : sequence of str or Path. The JSON files; a sentence and its clip may be in different
        files.
    subset : bool. Use the existing clips and count the others; otherwise a missing clip is an
        error, as are split sizes other than 6,513, 497 and 2,990.
    expect : mapping of str to int, or None. Required number of clips by split, such as {"test": 0}
        without the test file.

    Raises
    ------
    DatasetError
        A file is missing or not JSON; an entry lacks a key or has a value of the wrong type; a clip
        occurs twice, has no sentence or no file; a sentence's clip is unknown; a split has another
        number of clips. Entries are named by index, `videos[12]`.

    Examples
    --------
    >>> pipeline.read_msrvtt(
    ...     "msrvtt/clips", ["train_val_videodatainfo.json", "test_videodatainfo.json"]
    ... )  # doctest: +SKIP
    """
    root, files = Path(root), [Path(path) for path in captions]
    clips = ClipFiles(root, subset)
    documents = [(path, read_json(path, _Document)) for path in files]
    seen: dict[str, str] = {}
    splits: dict[str, str] = {}
    for path, document in documents:
        for index, video in enumerate(document.videos):
            where = f"{path}: videos[{index}]"
            clip, split = video.video_id, video.split
            if clip in seen:
                raise DatasetError(f"{where}: duplicate clip {clip!r}, first in {seen[clip]}")
            if reason := check_split(split):
                raise DatasetError(f"{where}: split {split!r} {reason}")
            seen[clip], splits[clip] = where, _SPLITS.get(split, split)
    texts: dict[str, list[str]] = {clip: [] for clip in seen}
    mended = 0
    for path, document in documents:
        for index, sentence in enumerate(document.sentences):
            where = f"{path}: sentences[{index}]"
            clip, text = sentence.video_id, sentence.caption
            if clip not in texts:
                raise DatasetError(f"{where}: clip {clip!r} is not in any `videos`")
            texts[clip].append(caption := caption_line(text, where))
            mended += caption != text
    entries = []
    for clip, where in seen.items():
        if not texts[clip]:
            raise DatasetError(
                f"{where}: clip {clip!r} has no sentence; check that the files are complete"
            )
        if (file := clips.find(clip, where)) is not None:
            entries.append(ImageEntry(clip, file, splits[clip], tuple(texts[clip])))
    manifest = Manifest(
        name="msrvtt",
        image_root=root,
        entries=tuple(entries),
        licence="clips belong to their authors; for research",
        source="MSR-VTT " + ", ".join(path.name for path in files),
        notes=source_notes(files, mended),
        media="clips",
    )
    manifest.notes.update(clips.check("msrvtt", manifest.counts, KNOWN_COUNTS, expect or {}))
    return manifest


class _Video(msgspec.Struct):
    video_id: str
    split: str


class _Sentence(msgspec.Struct):
    video_id: str
    caption: str


class _Document(msgspec.Struct):
    videos: list[_Video]
    sentences: list[_Sentence]
