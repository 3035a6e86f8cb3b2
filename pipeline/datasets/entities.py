"""Flickr30k Entities (Plummer et al., ICCV 2015): phrases of captions with chains and boxes.

`Sentences/<id>.txt` has a caption a line, its phrases marked `[/EN#chain/type words]`;
`Annotations/<id>.xml` has the photo's size and the boxes of each chain, counted from 1 with the
last pixel included. They are read from a folder, a tar or a zip file as they lie.
"""

import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from xml.etree import ElementTree

from pipeline.datasets.manifest import DatasetError, ImageEntry, Manifest, check_counts
from pipeline.datasets.photo_size import photo_size
from pipeline.datasets.phrases import Box, RegionPhrase, check_box, hull
from pipeline.datasets.source import caption_line, read_lines, source_notes

Several = Literal["union", "any"]
"""What the several boxes of a chain mean: one box around all, or each of them is right."""

_FIRST = {"train": 0, "dev": 1, "val": 1, "test": 2}
_UNRELATED = "UNRELATED_CAPTIONS"
_MARKED = re.compile(r"\[/EN#([0-9]+)((?:/[^\s/\[\]]+)+) ([^\[\]]+)\]")
_NUMBER = re.compile(r"[0-9]+")
_DECIMALS = 2


@dataclass(slots=True)
class _Annotation:
    """One XML file: the photo's size, the boxes of each chain, and the chains that have none."""

    size: tuple[int, int]
    boxes: dict[str, list[Box]]
    boxless: set[str]


@dataclass(slots=True)
class _Sentence:
    """One caption, and the chain, types and words of its phrases."""

    text: str
    phrases: list[tuple[str, tuple[str, ...], str]]


@dataclass
class _Source:
    """Everything that the files say, by image."""

    annotations: dict[str, _Annotation] = field(default_factory=dict)
    sentences: dict[str, list[_Sentence]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)


def read_entities(
    root: str | Path,
    images: str | Path,
    *,
    splits: Mapping[str, str | Path] | None = None,
    several: Several = "union",
    scale: bool = False,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read Flickr30k Entities, or a part of it, with the photos.

    An image's id is its photo's file name; the photo of `<id>.xml` is the one whose name begins
    with that number, so that Flickr8k's photos fit as well. Captions are the sentences without
    their marks. Phrases that are not visual, of the whole scene, or marked as without a box are
    left out and counted, as are those of captions that `UNRELATED_CAPTIONS` lists (an id and the
    number of a sentence, counted from 1).

    Parameters
    ----------
    root : folder, .tar, .tar.gz or .zip with `Annotations/`, `Sentences/` and `<split>.txt`.
    images : folder of the photos.
    splits : split name to a file with an id a line, in the place of those in `root`.
    several : what the several boxes of a chain mean.
    scale : fit the boxes of a photo that has another size than its XML says to its size, each side
        by its own factor, rounded to a hundredth of a pixel. Otherwise such a photo is refused.
    expect : number of images that a split must have.

    Raises
    ------
    DatasetError
        A file is missing or malformed; a mark is not closed; a chain is in no XML; a box has no
        area or leaves the photo; a photo is missing, has two files or another size; a split has
        another number of images. File and line are named.
    """
    root, images = Path(root), Path(images)
    source = _Source()
    for path, data in _members(root):
        _take(source, path, data, f"{root}/{path}")
    wanted = _split_lists(root, source, splits)
    photos = _photos_by_number(images)
    unrelated = {tuple(line.split()) for line in source.lists.get(_UNRELATED, [])}
    entries: list[ImageEntry] = []
    phrases: list[RegionPhrase] = []
    left_out: Counter[str] = Counter()
    for split in sorted(wanted, key=lambda name: (_FIRST.get(name, 3), name)):
        for number, where in wanted[split].items():
            entry, annotation = _image(source, photos, number, split, root, where)
            size = photo_size(images / entry.file)
            if size != annotation.size and not scale:
                raise DatasetError(
                    f"{images / entry.file} has {size[0]} x {size[1]} pixels, and "
                    f"{root}/Annotations/{number}.xml is of {annotation.size[0]} x "
                    f"{annotation.size[1]}; give the original photos, or --scale-boxes"
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


def _members(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of the files that matter, each read once, nothing unpacked to disk."""
    try:
        if root.is_dir():
            for path in sorted(root.rglob("*")):
                if path.is_file() and _matters(name := path.relative_to(root).as_posix()):
                    yield name, path.read_bytes()
        elif zipfile.is_zipfile(root):
            with zipfile.ZipFile(root) as archive:
                for name in sorted(archive.namelist()):
                    if _matters(name):
                        yield name, archive.read(name)
        else:
            with tarfile.open(root) as archive:
                for member in archive:
                    if member.isfile() and _matters(member.name):
                        stream = archive.extractfile(member)
                        yield member.name, stream.read() if stream else b""
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DatasetError(
            f"{root} cannot be read ({error}); a folder, .tar.gz or .zip with Annotations/ and "
            "Sentences/ was expected"
        ) from error


def _matters(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    folder = folders[-1] if folders else ""
    if folder in ("Annotations", "Sentences"):
        return name.endswith((".xml", ".txt")) and not name.startswith(".")
    return name == _UNRELATED or name.endswith(".txt")


def _take(source: _Source, path: str, data: bytes, where: str) -> None:
    """Enter one file."""
    place = PurePosixPath(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{where}: byte {error.start} is not UTF-8; convert the file") from error
    if place.parent.name == "Annotations":
        source.annotations[place.stem] = _annotation(text, where)
    elif place.parent.name == "Sentences":
        lines = enumerate(text.splitlines(), start=1)
        source.sentences[place.stem] = [
            _sentence(line, f"{where}, line {number}") for number, line in lines if line.strip()
        ]
    else:
        lines = enumerate(text.splitlines(), start=1)
        source.lists[place.name.removesuffix(".txt")] = [
            line for _, line in lines if not line.startswith("#")
        ]


def _annotation(text: str, where: str) -> _Annotation:
    # Expat expands what a file defines for itself; these files define nothing.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DatasetError(f"{where} defines entities, which no file of Entities does; remove it")
    try:
        document = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise DatasetError(f"{where} is no XML: {error}; check that the file is whole") from error
    width, height = (_whole(document.find("size"), side, where) for side in ("width", "height"))
    found = _Annotation((width, height), {}, set())
    for number, thing in enumerate(document.iterfind("object")):
        here = f"{where}: object {number}"
        chains = [name.text or "" for name in thing.iterfind("name")]
        if not chains:
            raise DatasetError(f"{here} has no <name>; the number of its chain was expected")
        corners = thing.find("bndbox")
        if corners is None:
            found.boxless.update(chains)
            continue
        x0, y0, x1, y1 = (_whole(corners, side, here) for side in ("xmin", "ymin", "xmax", "ymax"))
        box = (float(x0 - 1), float(y0 - 1), float(x1), float(y1))
        if fault := check_box(box, found.size):
            raise DatasetError(
                f"{here} (chain {', '.join(chains)}): its box {x0} {y0} {x1} {y1}, counted from 1, "
                f"{fault}; correct the file, or take the image out of its split"
            )
        for chain in chains:
            found.boxes.setdefault(chain, []).append(box)
    return found


def _whole(element: ElementTree.Element | None, name: str, where: str) -> int:
    text = element.findtext(name) if element is not None else None
    try:
        return int(text or "")
    except ValueError:
        raise DatasetError(
            f"{where}: <{name}> is {text!r}; a whole number of pixels was expected"
        ) from None


def _sentence(line: str, where: str) -> _Sentence:
    phrases = [
        (chain, tuple(types.strip("/").split("/")), words)
        for chain, types, words in _MARKED.findall(line)
    ]
    text = _MARKED.sub(r"\3", line)
    if "[/EN" in text:
        raise DatasetError(
            f"{where}: the mark at {text[text.index('[/EN') :][:40]!r} is not closed or malformed; "
            "[/EN#chain/type words] was expected"
        )
    return _Sentence(caption_line(text, where), phrases)


def _split_lists(
    root: Path, source: _Source, splits: Mapping[str, str | Path] | None
) -> dict[str, dict[str, str]]:
    """Return, by split, the images' numbers, each with the place where it is listed."""
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
            f"{root} has no train.txt, val.txt, dev.txt or test.txt; give --split NAME=FILE"
        )
    listed: dict[str, str] = {}
    found: dict[str, dict[str, str]] = {}
    for split, lines in lists.items():
        for line_number, line in lines:
            if not (number := line.strip()):
                continue
            where = f"{splits[split] if splits else f'{root}/{split}.txt'}, line {line_number}"
            if number in listed:
                raise DatasetError(f"{where}: image {number} is listed before, in {listed[number]}")
            listed[number] = where
            found.setdefault(split, {})[number] = where
    return found


def _photos_by_number(folder: Path) -> dict[str, list[str]]:
    """Return the names of the photos in a folder by the number that they begin with."""
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; the folder of the photos was expected")
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        if number := _NUMBER.match(path.name):
            found.setdefault(number[0], []).append(path.name)
    return found


def _image(
    source: _Source,
    photos: Mapping[str, list[str]],
    number: str,
    split: str,
    root: Path,
    where: str,
) -> tuple[ImageEntry, _Annotation]:
    for kind, there in (("Annotations", source.annotations), ("Sentences", source.sentences)):
        if number not in there:
            raise DatasetError(f"{where}: image {number} has no file in {root}/{kind}")
    names = photos.get(number, [])
    if len(names) != 1:
        raise DatasetError(
            f"{where}: {len(names)} photos have a name that begins with {number} "
            f"({', '.join(names)}); one was expected: check the folder, or list the images that "
            "are there with --split NAME=FILE"
        )
    captions = tuple(sentence.text for sentence in source.sentences[number])
    return ImageEntry(names[0], names[0], split, captions), source.annotations[number]


def _phrases(
    source: _Source,
    number: str,
    entry: ImageEntry,
    annotation: _Annotation,
    size: tuple[int, int],
    several: Several,
    unrelated: set[tuple[str, ...]],
    root: Path,
    left_out: Counter[str],
) -> Iterator[RegionPhrase]:
    """Yield the phrases of one image that have boxes, and count the others."""
    factors = [new / old for new, old in zip(size, annotation.size, strict=True)] * 2
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
