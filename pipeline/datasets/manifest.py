"""The manifest: which images or clips a dataset has, with ids, files, splits and captions.

`manifest.jsonl` holds one line an image; `dataset.json`, written last, says where the images
lie and guards the manifest by its SHA-256. Everything downstream is joined by the ids here.
A dataset of clips has the same lines, a clip each, and `dataset.json` says so: `"media": "clips"`.
A dataset with phrases and boxes has `regions.jsonl` beside, read by `pipeline.datasets.regions`.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pipeline.datasets.phrases import RegionPhrase, check_box, regions_text
from pipeline.errors import PipelineError
from pipeline.files import write_json, write_text
from pipeline.hashing import canonical_json, sha256_of_file

MANIFEST_FILE = "manifest.jsonl"
REGIONS_FILE = "regions.jsonl"
DATASET_FILE = "dataset.json"

Media = Literal["images", "clips"]
"""What the files of a dataset are: pictures, or moving pictures and sound."""

NO_PICTURES = "prepare one with `pipeline prepare folder`, or another of its commands for images"
"""What to do where pictures are needed and a dataset has clips."""

_UNITS: dict[str, str] = {"images": "image", "clips": "clip"}
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class DatasetError(PipelineError):
    """A dataset, or a source file that one is made from, is not as its format says."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One image, or one clip.

    Attributes
    ----------
    id : the image's name in every later file, unique in its dataset.
    file : path relative to the dataset's image root, with forward slashes.
    split : "train", "val", "test" or another name of the source.
    captions : the captions in the source's order, all of them.
    """

    id: str
    file: str
    split: str
    captions: tuple[str, ...]

    @property
    def caption_ids(self) -> tuple[str, ...]:
        """`<image id>#<k>` for each caption, k from 0."""
        return tuple(f"{self.id}#{k}" for k in range(len(self.captions)))

    @property
    def first_caption(self) -> str:
        """The first caption, or "" of an image without captions."""
        return next(iter(self.captions), "")


@dataclass(frozen=True)
class Manifest:
    """The images, or the clips, of a dataset in their fixed order.

    Attributes
    ----------
    name : the dataset's name.
    image_root : the folder that every entry's `file` is relative to.
    entries : the images; row order of every feature file made from this dataset.
    licence, source : who may use the images and captions, and where they came from.
    notes : metadata of the preparation (JSON values), such as images left out.
    phrases : the phrases and boxes to be written with it; `read_manifest` leaves them where they
        are, and `pipeline.datasets.regions.read_phrases` reads them. None: the dataset has none.
    media : what the files are.

    Raises
    ------
    DatasetError
        Repeated ids, ids or files that leave the image root, control characters, empty
        captions, unusable split names, or no image at all; phrases of an unknown image or
        caption, empty ones, or ones with a box that has no area or leaves the image.
    """

    name: str
    image_root: Path
    entries: tuple[ImageEntry, ...]
    licence: str
    source: str
    notes: dict[str, Any]
    phrases: tuple[RegionPhrase, ...] | None = None
    media: Media = "images"

    def __post_init__(self) -> None:
        if not self.entries:
            raise DatasetError(
                f"dataset {self.name!r} has no {self.unit}: at least one was expected"
            )
        repeated = [i for i, n in Counter(e.id for e in self.entries).items() if n > 1]
        if repeated:
            raise DatasetError(
                f"dataset {self.name!r}: {len(repeated)} ids occur more than once, first "
                f"{repeated[:5]}; every {self.unit} needs an id of its own"
            )
        for entry in self.entries:
            _check_entry(entry, self.unit)
        if self.phrases is not None:
            _check_phrases(self.name, self.phrases, self.entries)

    @property
    def unit(self) -> str:
        """What one entry is, for messages: "image" or "clip"."""
        return _UNITS[self.media]

    def require(self, media: Media, asked_by: str, remedy: str) -> "Manifest":
        """Return this dataset if its files are of the kind that is needed.

        Parameters
        ----------
        media : what the files must be.
        asked_by : what needs them, such as "pipeline propose"; it begins the message.
        remedy : what to do with a dataset of the other kind; it ends the message.

        Raises
        ------
        DatasetError
        """
        if self.media != media:
            raise DatasetError(
                f"{asked_by} needs a dataset of {media}, and {self.name!r} is one of "
                f"{self.media}; {remedy}"
            )
        return self

    @property
    def counts(self) -> dict[str, int]:
        """Number of images in each split, in order of first appearance."""
        return dict(Counter(e.split for e in self.entries))

    def select(self, split: str | None = None) -> tuple[ImageEntry, ...]:
        """Return the images of one split, or all of them, in manifest order.

        Raises
        ------
        DatasetError
            The dataset has no such split.
        """
        if split is None:
            return self.entries
        if split not in self.counts:
            raise DatasetError(
                f"dataset {self.name!r} has no split {split!r}; it has "
                + ", ".join(f"{s} ({n} {self.media})" for s, n in self.counts.items())
            )
        return tuple(e for e in self.entries if e.split == split)

    def captions(self, split: str | None = None) -> dict[str, str]:
        """Return the captions of one split, or all of them, by caption id, in manifest order.

        Raises
        ------
        DatasetError
            The dataset has no such split.
        """
        return {
            caption_id: caption
            for entry in self.select(split)
            for caption_id, caption in zip(entry.caption_ids, entry.captions, strict=True)
        }

    def write(self, folder: str | Path) -> None:
        """Write `manifest.jsonl`, `regions.jsonl` if there are phrases, then `dataset.json`."""
        folder = Path(folder)
        lines = [
            canonical_json(
                {"id": e.id, "file": e.file, "split": e.split, "captions": list(e.captions)}
            )
            for e in self.entries
        ]
        manifest = folder / MANIFEST_FILE
        write_text(manifest, "\n".join(lines) + "\n")
        regions = folder / REGIONS_FILE
        described: dict[str, Any] = {} if self.media == "images" else {"media": self.media}
        if self.phrases is None:
            regions.unlink(missing_ok=True)
        else:
            write_text(regions, regions_text(self.phrases))
            described["phrases"] = len(self.phrases)
            described["regions_sha256"] = sha256_of_file(regions)
        root = os.path.relpath(self.image_root.resolve(), folder.resolve())
        write_json(
            folder / DATASET_FILE,
            {
                "name": self.name,
                "image_root": PurePosixPath(Path(root)).as_posix(),
                "counts": self.counts,
                self.media: len(self.entries),
                "captions": sum(len(e.captions) for e in self.entries),
                "manifest_sha256": sha256_of_file(manifest),
                "licence": self.licence,
                "source": self.source,
                "notes": self.notes,
                **described,
            },
        )


def read_manifest(folder: str | Path) -> Manifest:
    """Read and check a dataset folder that `Manifest.write` made.

    Raises
    ------
    DatasetError
        A file is missing, damaged, or the manifest is not the one that `dataset.json` guards.
    """
    folder = Path(folder)
    described, manifest = folder / DATASET_FILE, folder / MANIFEST_FILE
    for path in (described, manifest):
        if not path.is_file():
            raise DatasetError(
                f"{path} not found: {folder} is no prepared dataset; `pipeline prepare` makes one"
            )
    try:
        metadata = json.loads(described.read_text(encoding="utf-8"))
        digest = metadata["manifest_sha256"]
        if sha256_of_file(manifest) != digest:
            raise DatasetError(
                f"{manifest} is not the file that {described} describes (its SHA-256 is not "
                f"{digest[:16]}...): it was changed, or its preparation was interrupted; "
                "prepare it again"
            )
        lines = manifest.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        rows = [json.loads(line) for line in lines]
        if (media := metadata.get("media", "images")) not in _UNITS:
            raise DatasetError(
                f"{described}: its media is {media!r}; {' or '.join(_UNITS)} was expected: a newer "
                "version of this package may have prepared it"
            )
        return Manifest(
            name=metadata["name"],
            image_root=Path(os.path.normpath(folder.resolve() / metadata["image_root"])),
            entries=tuple(
                ImageEntry(r["id"], r["file"], r["split"], tuple(r["captions"])) for r in rows
            ),
            licence=metadata["licence"],
            source=metadata["source"],
            notes=metadata["notes"],
            media=media,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{described} or {manifest} is damaged ({error!r}); prepare it again"
        ) from error


def check_relative(path: str) -> str | None:
    """Return the reason why `path` is no path below a root; None if it is.

    The check is lexical, so it needs no file system: no absolute path, no `..`, no backslash,
    no control character.
    """
    if not path or path != path.strip():
        return "is empty or has blanks at an end"
    if not path.isprintable():
        return "has control characters"
    if "\\" in path:
        return "has a backslash (use forward slashes)"
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
        return "leaves the image root"
    return None


def check_caption(text: str) -> str | None:
    """Return the reason why `text` is no caption; None if it is."""
    if not text.strip():
        return "is empty"
    if len(text.splitlines()) != 1:
        return "has a line break"
    if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in text):
        return "has a NUL or half a surrogate pair, which is no text"
    return None


def check_split(name: str) -> str | None:
    """Return the reason why `name` is no name of a split; None if it is."""
    return None if _SPLIT.fullmatch(name) else "is no plain name (letters, digits, _ . -)"


def check_counts(name: str, counts: dict[str, int], expected: dict[str, int]) -> None:
    """Assert the number of images in each split named in `expected`.

    Raises
    ------
    DatasetError
        A split has another number of images; all splits that differ are named.
    """
    wrong = [
        f"{split}: {counts.get(split, 0)} found, {number} expected"
        for split, number in expected.items()
        if counts.get(split, 0) != number
    ]
    if wrong:
        raise DatasetError(
            f"dataset {name!r} has other counts than expected ({'; '.join(wrong)}); check that the "
            "download is whole, or state the counts that you mean"
        )


def split_by_hash(ids: Iterable[str], fractions: dict[str, float]) -> dict[str, str]:
    """Give each id a split by the SHA-256 of the id, so that adding images moves none.

    Parameters
    ----------
    ids : image ids.
    fractions : split name to its share; the shares sum to 1.
    """
    bounds: list[tuple[float, str]] = []
    total = 0.0
    for split, share in fractions.items():
        total += share
        bounds.append((total, split))
    chosen = {}
    for image_id in ids:
        u = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") / 2**64
        chosen[image_id] = next((s for bound, s in bounds if u < bound), bounds[-1][1])
    return chosen


def _check_entry(entry: ImageEntry, unit: str) -> None:
    for what, text in (("id", entry.id), ("file", entry.file)):
        if fault := check_relative(text):
            raise DatasetError(
                f"{unit} {entry.id!r}: its {what} {text!r} {fault}; ids and files must stay below "
                "the image root"
            )
    if fault := check_split(entry.split):
        raise DatasetError(f"{unit} {entry.id!r}: split {entry.split!r} {fault}")
    for k, caption in enumerate(entry.captions):
        if fault := check_caption(caption):
            raise DatasetError(f"{unit} {entry.id!r}: caption {k} {fault}")


def _check_phrases(
    name: str, phrases: Iterable[RegionPhrase], entries: Iterable[ImageEntry]
) -> None:
    captions = {entry.id: len(entry.captions) for entry in entries}
    seen: Counter[str] = Counter()
    for phrase in phrases:
        where = f"dataset {name!r}, phrase {phrase.id!r}"
        if phrase.image not in captions:
            raise DatasetError(f"{where}: its image {phrase.image!r} is not in the dataset")
        if phrase.id != f"{phrase.image}#p{seen[phrase.image]}":
            raise DatasetError(
                f"{where}: an id such as {phrase.image}#p{seen[phrase.image]} was expected, "
                "numbered from 0 in each image"
            )
        seen[phrase.image] += 1
        if phrase.caption is not None:
            image, _, number = phrase.caption.rpartition("#")
            if image != phrase.image or not number.isdigit() or int(number) >= captions[image]:
                raise DatasetError(f"{where}: its image has no caption {phrase.caption!r}")
        if fault := check_caption(phrase.phrase):
            raise DatasetError(f"{where}: the phrase {fault}")
        if not phrase.boxes:
            raise DatasetError(f"{where} has no box; leave it out, or give one")
        for box in phrase.boxes:
            if fault := check_box(box, phrase.size):
                raise DatasetError(f"{where}: its box {list(box)} {fault}")
