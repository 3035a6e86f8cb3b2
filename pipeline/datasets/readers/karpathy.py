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

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.collector import Collector
from pipeline.datasets.source import read_json

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
    """Read one of Karpathy's split files, dataset_<name>.json.

    An image's id is its `cocoid` as text if it exists, else its file name. Images and captions (all
    `raw` sentences) are in file order.

    Parameters
    ----------
    root : str or Path. Folder of the images, in which each is `filepath/filename` or `filename`.
    captions : str or Path. The JSON file.
    restval : str. COCO's restval images: merge them into train, keep them as a split, or leave them
        out.
    expect : mapping of str to int, or None. Required number of images of a split; adds to or
        overrides the known counts of coco, flickr30k and flickr8k.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        A file is missing or not JSON, an entry is malformed, repeated or without captions, or a
        split has another number of images. Entries are named by index, `images[12]`.

    Examples
    --------
    >>> pipeline.read_karpathy("flickr30k-images", "dataset_flickr30k.json")  # doctest: +SKIP
    """
    root, captions = Path(root), Path(captions)
    document = read_json(captions, _Document)
    found, of_restval = Collector(root), 0
    for index, image in enumerate(document.images):
        where = f"{captions}: images[{index}]"
        split = found.split(image.split, where)
        if split == "restval" and restval != "keep":
            of_restval += 1
            if restval == "leave-out":
                continue
            split = "train"
        found.once(image.id, where)
        if not image.sentences:
            raise DatasetError(f"{where}: `sentences` is empty; every image needs a caption")
        texts = [
            found.caption(sentence.raw, f"{where}.sentences[{k}]")
            for k, sentence in enumerate(image.sentences)
        ]
        file = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
        found.add(image.id, file, split, texts, where)
    note = "restval_merged" if restval == "train" else "restval_left_out"
    return found.manifest(
        document.dataset or captions.stem,
        [captions],
        _known_counts(document.dataset, restval) | dict(expect or {}),
        source=f"Karpathy's split file {captions.name}",
        licence="not stated in the split file; the terms of the dataset itself apply",
        notes={note: of_restval} if of_restval else {},
    )


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
    images: list[_Image]
    dataset: str = ""
