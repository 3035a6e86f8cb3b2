"""Flickr30k Entities (Plummer et al., ICCV 2015): phrases of captions with chains and boxes.

`Sentences/<id>.txt` has one caption per line, its phrases marked `[/EN#chain/type words]`;
`Annotations/<id>.xml` has the image size and the boxes of each chain, 1-based with the last pixel
included. They are read directly from a folder, a tar or a zip file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline.datasets.checks import DatasetError, check_counts
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.phrases import Box, RegionPhrase, hull, photo_size
from pipeline.datasets.readers.entities_files import UNRELATED, Annotation, Source, read_files
from pipeline.datasets.source import read_lines, source_notes

Several = Literal["union", "any"]
"""Meaning of several boxes of a chain: one box around all, or each of them is correct."""

_FIRST = {"train": 0, "dev": 1, "val": 1, "test": 2}
_NUMBER = re.compile(r"[0-9]+")
_DECIMALS = 2


def read_entities(
    root: str | Path,
    images: str | Path,
    *,
    splits: Mapping[str, str | Path] | None = None,
    several: Several = "union",
    scale: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read Flickr30k Entities, or a part of it, with the images.

    An image's id is its file name; the image of `<id>.xml` is the one whose name begins with that
    number, so that Flickr8k's images fit as well. Captions are the sentences without their marks.
    Phrases that are not visual, describe the whole scene, or are marked as boxless are skipped and
    counted, as are those of captions listed in `UNRELATED_CAPTIONS` (an id and the number of a
    sentence, from 1).

    Parameters
    ----------
    root : str or Path. Folder, .tar, .tar.gz or .zip with `Annotations/`, `Sentences/` and
        `<split>.txt`.
    images : str or Path. Folder of the images.
    splits : mapping of str to str or Path, or None. Split name to a file with one id per line,
        instead of those in `root`.
    several : str. Meaning of several boxes of a chain.
    scale : bool. Rescale the boxes of an image whose size differs from its XML, each axis by its
        own factor, rounded to a hundredth of a pixel. Otherwise raise.
    expect : mapping of str to int, or None. Required number of images by split.

    Raises
    ------
    DatasetError
        A file is missing or malformed; a mark is not closed; a chain is not in the XML; a box has
        no area or leaves the image; an image is missing, has two files or another size; a split has
        another number of images. File and line are named.

    Examples
    --------
    >>> pipeline.read_entities("flickr30k_entities", "flickr30k-images")  # doctest: +SKIP
    """
    root, images = Path(root), Path(images)
    source = read_files(root)
    listed = _split_lists(root, source, splits)
    photos = _photos_by_number(images)
    unrelated = {tuple(line.split()) for line in source.lists.get(UNRELATED, [])}
    entries: list[ImageEntry] = []
    phrases: list[RegionPhrase] = []
    left_out: Counter[str] = Counter()
    for split in sorted(listed, key=lambda name: (_FIRST.get(name, 3), name)):
        for number, where in listed[split].items():
            entry, annotation = _image(source, photos, number, split, root, where)
            size = photo_size(images / entry.file)
            if size != annotation.size and not scale:
                raise DatasetError(
                    f"{images / entry.file} has {size[0]} x {size[1]} pixels, but "
                    f"{root}/Annotations/{number}.xml records {annotation.size[0]} x "
                    f"{annotation.size[1]}; use the original photos, or `scale=True`"
                )
            entries.append(entry)
            phrases += _phrases(
                source, number, entry, annotation, size, several, unrelated, root, left_out
            )
    notes = _notes(root, splits, several, scale, left_out)
    manifest = Manifest(
        name="entities",
        image_root=images,
        entries=tuple(entries),
        licence="annotations: to cite Plummer et al., IJCV 2017; photos belong to their Flickr "
        "authors; for non-commercial research",
        source=f"Flickr30k Entities, {root.name}",
        notes=notes,
        phrases=tuple(phrases),
    )
    check_counts(manifest.name, manifest.counts, dict(expect or {}))
    return manifest


def _split_lists(
    root: Path, source: Source, splits: Mapping[str, str | Path] | None
) -> dict[str, dict[str, str]]:
    """Return, by split, the numbers of the images, each with the location of its entry."""
    lists: dict[str, Iterator[tuple[int, str]]] = (
        {split: read_lines(Path(path)) for split, path in splits.items()}
        if splits
        else {
            name: iter(enumerate(lines, start=1))
            for name, lines in source.lists.items()
            if name in _FIRST
        }
    )
    if not lists:
        raise DatasetError(
            f"{root} has no train.txt, val.txt, dev.txt or test.txt; pass `splits=...`, a file for "
            "each"
        )
    listed: dict[str, str] = {}
    by_split: dict[str, dict[str, str]] = {}
    for split, lines in lists.items():
        for line_number, line in lines:
            if not (number := line.strip()):
                continue
            where = f"{splits[split] if splits else f'{root}/{split}.txt'}, line {line_number}"
            if number in listed:
                raise DatasetError(f"{where}: duplicate image {number}, first in {listed[number]}")
            listed[number] = where
            by_split.setdefault(split, {})[number] = where
    return by_split


def _photos_by_number(folder: Path) -> dict[str, list[str]]:
    """Return the names of the images in a folder by the number that they begin with."""
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder, expected the folder of the photos")
    by_number: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        if number := _NUMBER.match(path.name):
            by_number.setdefault(number[0], []).append(path.name)
    return by_number


def _image(
    source: Source, photos: Mapping[str, list[str]], number: str, split: str, root: Path, where: str
) -> tuple[ImageEntry, Annotation]:
    for kind, there in (("Annotations", source.annotations), ("Sentences", source.sentences)):
        if number not in there:
            raise DatasetError(f"{where}: image {number} has no file in {root}/{kind}")
    names = photos.get(number, [])
    if len(names) != 1:
        raise DatasetError(
            f"{where}: {len(names)} photos have a name that begins with {number} "
            f"({', '.join(names)}); expected one: check the folder, or list the existing images "
            "with `splits=...`"
        )
    captions = tuple(sentence.text for sentence in source.sentences[number])
    return ImageEntry(names[0], names[0], split, captions), source.annotations[number]


def _phrases(
    source: Source,
    number: str,
    entry: ImageEntry,
    annotation: Annotation,
    size: tuple[int, int],
    several: Several,
    unrelated: set[tuple[str, ...]],
    root: Path,
    left_out: Counter[str],
) -> Iterator[RegionPhrase]:
    """Yield the phrases of one image that have boxes, and count the others."""
    factors = [new / old for new, old in zip(size, annotation.size, strict=True)] * 2  # x y x y
    count = 0
    for k, sentence in enumerate(source.sentences[number]):
        if (number, str(k + 1)) in unrelated:
            left_out["in unrelated captions"] += len(sentence.phrases)
            continue
        for chain, types, words in sentence.phrases:
            boxes = annotation.boxes.get(chain)
            if boxes is None:
                if "notvisual" in types:
                    left_out["not visual"] += 1
                elif chain in annotation.boxless:
                    left_out["scene or no box"] += 1
                else:
                    raise DatasetError(
                        f"{root}/Sentences/{number}.txt, caption {k + 1}: the chain {chain} of "
                        f"{words!r} is not in Annotations/{number}.xml; correct one of the files"
                    )
                continue
            if size != annotation.size:
                boxes = [_scaled(box, factors) for box in boxes]
            yield RegionPhrase(
                id=f"{entry.id}#p{count}",
                image=entry.id,
                phrase=words.strip(),
                types=types,
                chain=chain,
                caption=f"{entry.id}#{k}",
                boxes=tuple(boxes) if several == "any" else (hull(boxes),),
                size=size,
            )
            count += 1


def _scaled(box: Box, factors: list[float]) -> Box:
    x0, y0, x1, y1 = (round(v * f, _DECIMALS) for v, f in zip(box, factors, strict=True))
    return x0, y0, x1, y1


def _notes(
    root: Path,
    splits: Mapping[str, str | Path] | None,
    several: Several,
    scale: bool,
    left_out: Counter[str],
) -> dict[str, Any]:
    archives = [root] if root.is_file() else []
    notes = source_notes([*archives, *(Path(path) for path in (splits or {}).values())], 0)
    notes["several_boxes_of_a_chain"] = several
    if scale:
        notes["boxes_scaled_to_the_photos"] = True
    if left_out:
        notes["phrases_left_out"] = dict(sorted(left_out.items()))
    return notes
