"""MSR-VTT (Xu et al., CVPR 2016): clips with 20 sentences each, in the corpus's own JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.clip_files import ClipFiles
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import read_json
from pipeline.store.one_or_many import values_of

KNOWN_COUNTS = {"train": 6_513, "val": 497, "test": 2_990}

_SPLITS = {"validate": "val"}


def read_msrvtt(
    root: str | Path,
    captions: Sequence[str | Path],
    *,
    subset: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read MSR-VTT: all sentences, and the splits of 6,513, 497 and 2,990 clips.

    A clip's id is its `video_id`; clips and sentences keep the order of `videos` and `sentences` in
    the file. The split "validate" becomes "val".

    Parameters
    ----------
    root : str or Path. Folder of the clips, `<video_id>.mp4`.
    captions : sequence of str or Path. JSON file of the corpus, such as
        `train_val_videodatainfo.json`; a sentence and its clip may be in different files.
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
        A file is missing or not JSON, an entry is malformed or repeated, a clip has no sentence or
        no file, or a split has another number of clips. Entries are named by index, `videos[12]`.

    Examples
    --------
    >>> pipeline.read_msrvtt(
    ...     "msrvtt/clips", ["train_val_videodatainfo.json", "test_videodatainfo.json"]
    ... )  # doctest: +SKIP
    """
    root = Path(root)
    files = [Path(path) for path in values_of(captions, (str, Path), "a JSON file")]
    clips, found = ClipFiles(root, subset), Collector(root, "clips")
    documents = [(path, read_json(path, _Document)) for path in files]
    videos: dict[str, tuple[str, str]] = {}
    for path, document in documents:
        for index, video in enumerate(document.videos):
            where = f"{path}: videos[{index}]"
            found.once(video.video_id, where)
            split = found.split(video.split, where)
            videos[video.video_id] = _SPLITS.get(split, split), where
    texts: dict[str, list[str]] = {clip: [] for clip in videos}
    for path, document in documents:
        for index, sentence in enumerate(document.sentences):
            where, clip = f"{path}: sentences[{index}]", sentence.video_id
            if clip not in texts:
                raise DatasetError(f"{where}: clip {clip!r} is not in any `videos`")
            texts[clip].append(found.caption(sentence.caption, where))
    for clip, (split, where) in videos.items():
        if not texts[clip]:
            raise DatasetError(
                f"{where}: clip {clip!r} has no sentence; check that the files are complete"
            )
        if (file := clips.find(clip, where)) is not None:
            found.add(clip, file, split, texts[clip], where)
    return found.manifest(
        "msrvtt",
        files,
        clips.expected(KNOWN_COUNTS, expect),
        source="MSR-VTT " + ", ".join(path.name for path in files),
        licence="clips belong to their authors; for research",
        notes=clips.notes(KNOWN_COUNTS),
    )


class _Video(msgspec.Struct):
    video_id: str
    split: str


class _Sentence(msgspec.Struct):
    video_id: str
    caption: str


class _Document(msgspec.Struct):
    videos: list[_Video]
    sentences: list[_Sentence]
