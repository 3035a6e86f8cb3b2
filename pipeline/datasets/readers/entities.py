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

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.phrases import Box, hull, photo_size
from pipeline.datasets.readers.collector import FIRST_SPLITS, Collector, in_split_order
from pipeline.datasets.readers.entities_files import UNRELATED, Source, read_files
from pipeline.datasets.source import read_lines

Several = Literal["union", "any"]
"""Meaning of several boxes of a chain: one box around all, or each of them is correct."""

_NUMBER = re.compile(r"[0-9]+")
_DECIMALS = 2


def read_entities(
    root: str | Path,
    images: str | Path,
    *,
    splits: Mapping[str, str | Path] | None = None,
    boxes: Several = "union",
    scale_boxes: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read Flickr30k Entities: captions whose phrases have boxes.

    An image's id is its file name; `<id>.xml` belongs to the image whose name begins with <id>, as
    Flickr8k's names do too. Captions are the sentences without phrase markup. Phrases that are not
    visual, describe the whole scene, or are marked as boxless are skipped and counted, and so are
    those of the captions in `UNRELATED_CAPTIONS` (lines of image id and sentence number, from 1).

    Parameters
    ----------
    root : str or Path. Folder, .tar, .tar.gz or .zip with `Annotations/`, `Sentences/` and
        `<split>.txt`.
    images : str or Path. Folder of the images.
    splits : mapping of str to str or Path, or None. Split and its list of ids; default: the lists
        in the root.
    boxes : str. If a chain has several boxes: union, one box around all; any, each box is correct.
    scale_boxes : bool. Rescale the boxes of an image whose size differs from its XML, each axis by
        its own factor, rounded to a hundredth of a pixel; without this, such an image is an error.
    expect : mapping of str to int, or None. Required number of images of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

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
    source, found, left_out = read_files(root), Collector(images), Counter[str]()
    photos = _photos_by_number(images)
    unrelated = {tuple(line.split()) for line in source.lists.get(UNRELATED, [])}
    for split, number, where in _listed(root, source, splits, found):
        entry = _add_image(source, photos, number, split, root, where, found)
        size, annotation = photo_size(images / entry.file), source.annotations[number]
        if size != annotation.size and not scale_boxes:
            raise DatasetError(
                f"{images / entry.file} has {size[0]} x {size[1]} pixels, but "
                f"{root}/Annotations/{number}.xml records {annotation.size[0]} x "
                f"{annotation.size[1]}; use the original photos, or `scale_boxes=True`"
            )
        visible = _visible_phrases(source, number, unrelated, root, left_out)
        for k, chain, types, words in visible:
            of_chain = [_scaled(box, annotation.size, size) for box in annotation.boxes[chain]]
            several = tuple(of_chain) if boxes == "any" else (hull(of_chain),)
            caption = f"{entry.id}#{k}"
            found.add_phrase(
                entry.id, words.strip(), several, size, types=types, thing=chain, caption=caption
            )
    notes: dict[str, Any] = {"several_boxes_of_a_chain": boxes}
    if scale_boxes:
        notes["boxes_scaled_to_the_photos"] = True
    if left_out:
        notes["phrases_left_out"] = dict(sorted(left_out.items()))
    return found.manifest(
        "entities",
        [*([root] if root.is_file() else []), *map(Path, (splits or {}).values())],
        expect,
        source=f"Flickr30k Entities, {root.name}",
        licence="annotations: to cite Plummer et al., IJCV 2017; photos belong to their Flickr "
        "authors; for non-commercial research",
        notes=notes,
        with_phrases=True,
    )


def _listed(
    root: Path, source: Source, splits: Mapping[str, str | Path] | None, found: Collector
) -> list[tuple[str, str, str]]:
    """Return split, number and location of the images, split by split."""
    lists: dict[str, tuple[str, Iterator[tuple[int, str]]]] = (
        {split: (str(path), read_lines(Path(path))) for split, path in splits.items()}
        if splits
        else {
            name: (f"{root}/{name}.txt", iter(enumerate(lines, start=1)))
            for name, lines in source.lists.items()
            if name in FIRST_SPLITS
        }
    )
    if not lists:
        raise DatasetError(
            f"{root} has no train.txt, val.txt, dev.txt or test.txt; pass `splits=...`, a file for "
            "each"
        )
    listed = []
    for split in in_split_order(lists):
        path, lines = lists[split]
        for line_number, line in lines:
            if number := line.strip():
                where = f"{path}, line {line_number}"
                found.once(number, where)
                listed.append((split, number, where))
    return listed


def _photos_by_number(folder: Path) -> dict[str, list[str]]:
    """Return the names of the images in a folder by the number that they begin with."""
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder, expected the folder of the photos")
    by_number: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        if number := _NUMBER.match(path.name):
            by_number.setdefault(number[0], []).append(path.name)
    return by_number


def _add_image(
    source: Source,
    photos: Mapping[str, list[str]],
    number: str,
    split: str,
    root: Path,
    where: str,
    found: Collector,
) -> ImageEntry:
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
    captions = [sentence.text for sentence in source.sentences[number]]
    return found.add(names[0], names[0], split, captions, where)


def _visible_phrases(
    source: Source,
    number: str,
    unrelated: set[tuple[str, ...]],
    root: Path,
    left_out: Counter[str],
) -> Iterator[tuple[int, str, tuple[str, ...], str]]:
    """Yield caption number, chain, types and words of phrases with boxes, and count the others."""
    annotation = source.annotations[number]
    for k, sentence in enumerate(source.sentences[number]):
        if (number, str(k + 1)) in unrelated:
            left_out["in unrelated captions"] += len(sentence.phrases)
            continue
        for chain, types, words in sentence.phrases:
            if chain in annotation.boxes:
                yield k, chain, types, words
            elif "notvisual" in types:
                left_out["not visual"] += 1
            elif chain in annotation.boxless:
                left_out["scene or no box"] += 1
            else:
                raise DatasetError(
                    f"{root}/Sentences/{number}.txt, caption {k + 1}: the chain {chain} of "
                    f"{words!r} is not in Annotations/{number}.xml; correct one of the files"
                )


def _scaled(box: Box, old: tuple[int, int], new: tuple[int, int]) -> Box:
    if old == new:
        return box
    factors = [to / of for to, of in zip(new, old, strict=True)] * 2  # x y x y
    x0, y0, x1, y1 = (round(v * f, _DECIMALS) for v, f in zip(box, factors, strict=True))
    return x0, y0, x1, y1
