"""Flickr8k and Flickr30K in their original form: a token file and lists of image names.

A line of the token file is `name.jpg#k<TAB>caption`; a split file has one name per line.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.checks import DatasetError, check_counts
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.source import (
    caption_line,
    located_lines,
    media_file,
    read_lines,
    source_notes,
)

_FIRST = {"train": 0, "dev": 1, "val": 1, "test": 2}
_NAMES_SHOWN = 5

Captions = dict[str, dict[int, tuple[str, int]]]
"""Image name to caption number to (caption, line)."""


def read_flickr8k(
    root: str | Path,
    *,
    images: str | Path | None = None,
    captions: str | Path | None = None,
    splits: Mapping[str, str | Path] | None = None,
    captions_per_image: int = 5,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read Flickr8k's token file and split files.

    As `read_karpathy` of `dataset_flickr8k.json`, but from the original files. An image's id is its
    name in the token file, so caption ids are Flickr8k's own. Splits are in the order train, dev or
    val, test, others by name; images in the order of their split file. Captioned images outside all
    splits are skipped and counted in the notes.

    Parameters
    ----------
    root : str or Path. Folder with `images/`, `annotations/*token*` and `splits/<split>.txt`.
    images, captions, splits : str, Path, mapping of str to str or Path, or None. Other locations
        (`splits`: file by split name).
    captions_per_image : int. Every image of a split has captions #0 to #(captions_per_image - 1).
    expect : mapping of str to int, or None. Required number of images by split.

    Raises
    ------
    DatasetError
        A file is missing; a line is malformed; a caption is missing, repeated or misnumbered; an
        image is listed twice, has no captions or no file; a split has another number of images.

    Examples
    --------
    >>> pipeline.read_flickr8k("flickr8k").write("data/flickr8k")  # doctest: +SKIP
    """
    root = Path(root)
    images = Path(images or root / "images")
    token_file = Path(captions) if captions else _token_file(root / "annotations")
    split_files = {split: Path(file) for split, file in (splits or {}).items()}
    split_files = split_files or _split_files(root / "splits")
    captioned, mended = _read_captions(token_file, captions_per_image)
    entries: list[ImageEntry] = []
    listed: dict[str, str] = {}
    for split in sorted(split_files, key=lambda s: (_FIRST.get(s, 3), s)):
        for where, line in located_lines(split_files[split]):
            name = line.strip()
            if name in listed:
                raise DatasetError(
                    f"{where}: duplicate image {name!r}, first in {listed[name]}; an image belongs "
                    "to one split, once"
                )
            listed[name] = where
            if name not in captioned:
                raise DatasetError(
                    f"{where}: image {name!r} has no caption in {token_file}; check that the "
                    "files belong together"
                )
            entries.append(
                ImageEntry(
                    id=name,
                    file=media_file(images, name, where),
                    split=split,
                    captions=_all_captions(captioned[name], captions_per_image, name, token_file),
                )
            )
    notes = source_notes([token_file, *split_files.values()], mended)
    if left_out := [name for name in captioned if name not in listed]:
        notes["images_in_no_split"] = len(left_out)
        notes["images_in_no_split_first"] = left_out[:_NAMES_SHOWN]
    manifest = Manifest(
        name="flickr8k",
        image_root=images,
        entries=tuple(entries),
        licence="photos belong to their Flickr authors; for non-commercial research",
        source=f"Flickr token file {token_file.name}",
        notes=notes,
    )
    check_counts(manifest.name, manifest.counts, dict(expect or {}))
    return manifest


def _token_file(folder: Path) -> Path:
    files = sorted(p for p in folder.glob("*token*") if p.is_file())
    if len(files) != 1:
        raise DatasetError(
            f"{folder} has {len(files)} files named *token* ({[p.name for p in files]}), expected "
            "one; pass the path of the token file"
        )
    return files[0]


def _split_files(folder: Path) -> dict[str, Path]:
    files = {path.stem: path for path in sorted(folder.glob("*.txt"))}
    if not files:
        raise DatasetError(
            f"{folder} has no split file <split>.txt; pass names and paths of the split files"
        )
    return files


def _read_captions(path: Path, captions_per_image: int) -> tuple[Captions, int]:
    """Return the captions by image and number, and how many had surrounding blanks."""
    captions: Captions = {}
    mended = 0
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        match = re.fullmatch(r"([^\t]+)#([0-9]{1,6})\t(.*)", line)
        if not match:
            raise DatasetError(
                f"{where}: {line[:60]!r} is not a caption line, expected NAME#NUMBER<TAB>CAPTION"
            )
        name, k, text = match[1], int(match[2]), match[3]
        if k >= captions_per_image:
            raise DatasetError(
                f"{where}: caption {name}#{k} has a number beyond #{captions_per_image - 1}; "
                f"images have {captions_per_image} captions, numbered from #0"
            )
        numbered = captions.setdefault(name, {})
        if k in numbered:
            raise DatasetError(
                f"{where}: duplicate caption {name}#{k}, first in line {numbered[k][1]}; numbers "
                "must be unique in an image"
            )
        caption = caption_line(text, f"{where}: {name}#{k}")
        mended += caption != text
        numbered[k] = caption, number
    return captions, mended


def _all_captions(
    numbered: dict[int, tuple[str, int]], captions_per_image: int, name: str, path: Path
) -> tuple[str, ...]:
    """Return an image's captions in the order of their numbers; raise if one is missing."""
    if missing := [k for k in range(captions_per_image) if k not in numbered]:
        line = min(line for _, line in numbered.values())
        raise DatasetError(
            f"{path}: image {name!r} (first caption in line {line}) lacks caption "
            + ", ".join(f"{name}#{k}" for k in missing)
            + f"; expected {captions_per_image} captions numbered from #0"
        )
    return tuple(numbered[k][0] for k in range(captions_per_image))
