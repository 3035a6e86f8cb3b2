"""Karpathy's splits of COCO, Flickr30K and Flickr8k: files `dataset_<name>.json`.

The splits are those of Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments" (2015). COCO's
`restval` images are the rest of the 2014 validation set; the usual protocol also trains on them,
for a total of 113,287 training images.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from pipeline.datasets.checks import DatasetError, check_counts, check_split
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.source import caption_line, media_file, read_json, source_notes

Restval = Literal["train", "keep", "leave-out"]

KNOWN_COUNTS: dict[str, dict[str, int]] = {
    "coco": {"train": 82_783, "restval": 30_504, "val": 5_000, "test": 5_000},
    "flickr30k": {"train": 29_000, "val": 1_014, "test": 1_000},
    "flickr8k": {"train": 6_000, "val": 1_000, "test": 1_000},
}


def read_karpathy(
    root: str | Path,
    captions: str | Path,
    *,
    restval: Restval = "train",
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read a `dataset_<name>.json`; for COCO's own splits use `read_coco`.

    An image's id is its `cocoid` as text if it exists, else its file name. Images and captions (all
    `raw` sentences) are in file order.

    Parameters
    ----------
    root : str or Path. The image root; a file is `filepath/filename` below it, or `filename`
        without a `filepath`.
    captions : str or Path. The JSON file.
    restval : Restval. "train" merges the split restval into train, "keep" keeps it as a split,
        "leave-out" skips its images; the notes record the number of merged or skipped images.
    expect : mapping of str to int, or None. Required number of images by split, in addition to or
        instead of the known counts of "coco", "flickr30k" and "flickr8k" (the file's `dataset`).

    Raises
    ------
    DatasetError
        The file is missing or not JSON (line and column are named); an entry lacks a key or has a
        value of the wrong type; an id repeats; an image has no sentence or no file; a split has
        another number of images. Entries are named by index, `images[12]`.

    Examples
    --------
    >>> pipeline.read_karpathy("flickr30k-images", "dataset_flickr30k.json")  # doctest: +SKIP
    """
    root, captions = Path(root), Path(captions)
    document = read_json(captions, _Document)
    name = document.dataset
    entries: list[ImageEntry] = []
    seen: dict[str, int] = {}
    of_restval = mended = 0
    for index, image in enumerate(document.images):
        where = f"{captions}: images[{index}]"
        split = image.split
        if reason := check_split(split):
            raise DatasetError(f"{where}: split {split!r} {reason}")
        if split == "restval" and restval != "keep":
            of_restval += 1
            if restval == "leave-out":
                continue
            split = "train"
        if image.id in seen:
            raise DatasetError(
                f"{where}: duplicate image id {image.id!r}, first in images[{seen[image.id]}]; "
                "remove the copy"
            )
        seen[image.id] = index
        raw = [sentence.raw for sentence in image.sentences]
        if not raw:
            raise DatasetError(f"{where}: `sentences` is empty; every image needs a caption")
        texts = tuple(caption_line(s, f"{where}.sentences[{k}]") for k, s in enumerate(raw))
        mended += sum(text != s for text, s in zip(texts, raw, strict=True))
        file = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
        entries.append(ImageEntry(image.id, media_file(root, file, where), split, texts))
    notes = source_notes([captions], mended)
    if of_restval:
        notes["restval_merged" if restval == "train" else "restval_left_out"] = of_restval
    manifest = Manifest(
        name=name,
        image_root=root,
        entries=tuple(entries),
        licence="not stated in the split file; the terms of the dataset itself apply",
        source=f"Karpathy's split file {captions.name}",
        notes=notes,
    )
    check_counts(name, manifest.counts, _known_counts(name, restval) | dict(expect or {}))
    return manifest


def _known_counts(name: str, restval: Restval) -> dict[str, int]:
    counts = Counter(KNOWN_COUNTS.get(name, {}))
    if "restval" in counts and restval != "keep":
        rest = counts.pop("restval")
        counts["train"] += rest if restval == "train" else 0
    return dict(counts)


class _Sentence(msgspec.Struct):
    raw: str


class _Image(msgspec.Struct):
    filename: str
    split: str
    sentences: list[_Sentence]
    filepath: str = ""
    cocoid: int | str | None = None

    @property
    def id(self) -> str:
        return self.filename if self.cocoid is None else str(self.cocoid)


class _Document(msgspec.Struct):
    dataset: str
    images: list[_Image]
