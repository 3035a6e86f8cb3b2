"""Flickr8k and Flickr30K in their original form: a token file and lists of image names.

A line of the token file is `name.jpg#k<TAB>caption`; a split file has one name per line.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.collector import Collector, in_split_order
from pipeline.datasets.source import located_lines

_NAMES_SHOWN = 5

Captions = dict[str, dict[int, tuple[str, str]]]
"""Image name to caption number to (caption, location)."""


def read_flickr8k(
    root: str | Path,
    *,
    images: str | Path | None = None,
    captions: str | Path | None = None,
    splits: Mapping[str, str | Path] | None = None,
    captions_per_image: int = 5,
    expect: Mapping[str, int] | None = None,
) -> Manifest:
    """Read Flickr8k's token file and split lists (Flickr30K's token file has the same form).

    An image's id is its name in the token file, so caption ids are Flickr8k's own. Splits are in
    the order train, dev or val, test, others by name; images in the order of their list. Captioned
    images that no list names are skipped and counted in the notes.

    Parameters
    ----------
    root : str or Path. Folder with `images/`, `annotations/*token*` and `splits/<split>.txt`.
    images : str, Path or None. Folder of the images; default: `images/` in the root.
    captions : str, Path or None. Token file; default: `annotations/*token*` in the root.
    splits : mapping of str to str or Path, or None. Split and its list; default: `splits/*.txt` in
        the root.
    captions_per_image : int. Number of captions that every image of a split must have.
    expect : mapping of str to int, or None. Required number of images of a split.

    Returns
    -------
    Manifest
        The dataset; `Manifest.write` stores it.

    Raises
    ------
    DatasetError
        A file is missing, a line is malformed, a caption is missing, repeated or misnumbered, an
        image is listed twice or missing, or a split has another number of images.

    Examples
    --------
    >>> pipeline.read_flickr8k("flickr8k").write("data/flickr8k")  # doctest: +SKIP
    """
    root = Path(root)
    images = Path(images or root / "images")
    token_file = Path(captions) if captions else _token_file(root / "annotations")
    lists = {split: Path(file) for split, file in (splits or {}).items()}
    lists = lists or _split_files(root / "splits")
    found = Collector(images)
    captioned = _read_captions(token_file, captions_per_image, found)
    for split in in_split_order(lists):
        for where, line in located_lines(lists[split]):
            name = line.strip()
            found.once(name, where)
            if name not in captioned:
                raise DatasetError(
                    f"{where}: image {name!r} has no caption in {token_file}; check that the "
                    "files belong together"
                )
            texts = _all_captions(captioned[name], captions_per_image, name)
            found.add(name, name, split, texts, where)
    listed = {entry.id for entry in found.entries}
    left_out = [name for name in captioned if name not in listed]
    first = left_out[:_NAMES_SHOWN]
    notes = {"images_in_no_split": len(left_out), "images_in_no_split_first": first}
    return found.manifest(
        "flickr8k",
        [token_file, *lists.values()],
        expect,
        source=f"Flickr token file {token_file.name}",
        licence="photos belong to their Flickr authors; for non-commercial research",
        notes=notes if left_out else {},
    )


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


def _read_captions(path: Path, captions_per_image: int, found: Collector) -> Captions:
    """Return the captions by image and number."""
    captions: Captions = {}
    for where, line in located_lines(path):
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
                f"{where}: duplicate caption {name}#{k}, first in {numbered[k][1]}; numbers "
                "must be unique in an image"
            )
        numbered[k] = found.caption(text, f"{where}: {name}#{k}"), where
    return captions


def _all_captions(
    numbered: dict[int, tuple[str, str]], captions_per_image: int, name: str
) -> list[str]:
    """Return an image's captions in the order of their numbers; raise if one is missing."""
    if missing := [k for k in range(captions_per_image) if k not in numbered]:
        _, first = next(iter(numbered.values()))
        raise DatasetError(
            f"{first}: image {name!r}, whose first caption this is, lacks caption "
            + ", ".join(f"{name}#{k}" for k in missing)
            + f"; expected {captions_per_image} captions numbered from #0"
        )
    return [numbered[k][0] for k in range(captions_per_image)]
