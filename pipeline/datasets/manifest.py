"""The manifest of a dataset: its images or clips with ids, files, splits and captions.

`manifest.jsonl` has one line per image or clip. `dataset.json`, written last, records the image
root, the SHA-256 of the manifest, and for clips `"media": "clips"`. All derived data is joined by
these ids. `regions.jsonl` stores phrases with boxes, read by `pipeline.datasets.regions`;
`metadata.jsonl` stores the user's own columns, read by `pipeline.datasets.metadata`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, overload

from pipeline.datasets.checks import DatasetError, check_caption, check_entries
from pipeline.datasets.entries import Captions, FilesBelow, ImageEntry, PackedEntries
from pipeline.datasets.phrases import RegionPhrase, check_box
from pipeline.store.extras import require
from pipeline.store.files import appearing_whole, file_name, write_json
from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.store.objects.urls import shown, url_of
from pipeline.store.packed import TextMapping, repeated_texts
from pipeline.store.schema import Natural, Sha256, decode, decode_lines

if TYPE_CHECKING:
    import pandas as pd

MANIFEST_FILE = "manifest.jsonl"
REGIONS_FILE = "regions.jsonl"
METADATA_FILE = "metadata.jsonl"
DATASET_FILE = "dataset.json"

Media = Literal["images", "clips"]
"""Media type of a dataset: still images, or video clips with sound."""

Metadata = dict[str, Any]
"""Values of an image by column: str, number, bool or list of str."""

NO_PICTURES = "prepare one with `pipeline prepare folder`, or another of its commands for images"
"""Remedy where images are needed and a dataset has clips."""

_UNITS: dict[str, str] = {"images": "image", "clips": "clip"}


@dataclass(frozen=True, kw_only=True)
class Description:
    """Contents of `dataset.json`; fields as in `Manifest`, if not documented here."""

    name: str
    image_root: str  # relative to the folder, or a URL
    counts: dict[str, Natural]  # entries by split
    images: Natural = 0
    clips: Natural = 0
    captions: Natural
    phrases: Natural = 0
    manifest_sha256: Sha256
    regions_sha256: Sha256 | None = None
    metadata_sha256: Sha256 | None = None
    licence: str
    source: str
    notes: dict[str, Any]
    media: Media = "images"


class UnknownEntry(DatasetError, KeyError):
    """A dataset has no entry with an id; a `KeyError` as well."""

    __str__ = Exception.__str__  # KeyError would quote the message


@dataclass(frozen=True, repr=False)
class Manifest:
    """The images or clips of a dataset in a fixed order: a sequence of entries.

    Attributes
    ----------
    name : str. The dataset's name.
    image_root : Path. Folder or URL to which every entry's `file` is relative.
    entries : sequence of `pipeline.datasets.entries.ImageEntry`. The images, in the row order of
        every feature set of this dataset. Any sequence is accepted and stored column-wise.
    licence, source : str. Licence and origin of the images and captions.
    notes : dict. Metadata of the preparation (JSON values), such as skipped images.
    phrases : tuple or None. Phrases and boxes to write. `read_manifest` does not load them; see
        `pipeline.read_phrases`. None: no phrases.
    media : str. "images" or "clips".
    metadata : mapping of str to dict. The user's own columns by image id, to write.
        `read_manifest` does not load them; see `pipeline.read_metadata`.

    Raises
    ------
    DatasetError
        Repeated ids, ids or files outside the image root, control characters, empty captions,
        invalid split names, or no images; phrases of an unknown image or caption, empty ones, or
        with a box without area or outside the image.

    Examples
    --------
    >>> manifest
    <Manifest mine: 3 images (train 2, test 1), 4 captions, root photos>
    >>> manifest["a.jpg"].captions, manifest[-1].id, "d.jpg" in manifest
    (('a dog', 'a brown dog'), 'c.jpg', False)
    >>> test = manifest.split("test")
    >>> [entry.id for entry in test], test.captions().texts[:]
    (['c.jpg'], ['a tree'])
    """

    name: str
    image_root: Path
    entries: Sequence[ImageEntry]
    licence: str
    source: str
    notes: dict[str, Any]
    phrases: tuple[RegionPhrase, ...] | None = None
    media: Media = "images"
    metadata: Mapping[str, Metadata] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", self.packed)
        if not self.entries:
            raise DatasetError(f"dataset {self.name!r} has no {self.unit}, expected at least one")
        if repeated := repeated_texts(self.packed.ids):
            raise DatasetError(
                f"dataset {self.name!r}: {len(repeated)} ids occur more than once, first "
                f"{repeated[:5]}; ids must be unique"
            )
        if self.phrases is not None:
            _check_phrases(self.name, self.phrases, self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[ImageEntry]:
        return iter(self.entries)

    def __contains__(self, entry: object) -> bool:
        return (entry.id if isinstance(entry, ImageEntry) else entry) in self.by_id

    @overload
    def __getitem__(self, key: str | int) -> ImageEntry: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[ImageEntry]: ...
    def __getitem__(self, key: str | int | slice) -> ImageEntry | Sequence[ImageEntry]:
        """Return the entry of an id (else UnknownEntry) or a position, or those of a slice."""
        if not isinstance(key, str):
            return self.entries[key]
        if key not in self.by_id:
            raise UnknownEntry(
                f"dataset {self.name!r} has no {self.unit} {key!r}; its {len(self)} ids look like "
                f"{self.ids[0]!r}"
            )
        return self.by_id[key]

    def __repr__(self) -> str:
        counts = ", ".join(f"{split} {count}" for split, count in self.counts.items())
        captions = int(self.packed.num_captions.sum())
        return (
            f"<Manifest {self.name}: {len(self)} {self.media} ({counts}), {captions} captions, "
            f"root {shown(self.image_root)}>"
        )

    @property
    def ids(self) -> Sequence[str]:
        """The id of each entry, in manifest order."""
        return self.packed.ids

    def split(self, split: str) -> "Manifest":
        """Return the dataset restricted to one split; raise DatasetError if it does not exist."""
        entries = self.select(split)
        chosen = {*entries.ids}
        phrases = self.phrases and tuple(p for p in self.phrases if p.image in chosen)
        metadata = {name: columns for name, columns in self.metadata.items() if name in chosen}
        return replace(self, entries=entries, phrases=phrases, metadata=metadata)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame indexed by id with the columns file, split and captions (tuples)."""
        columns = ("file", "split", "captions")
        pd = require("pandas", "to_pandas() needs")
        data = {c: [getattr(e, c) for e in self] for c in columns}
        return pd.DataFrame(data, pd.Index([*self.ids], name="id"))

    @property
    def packed(self) -> PackedEntries:
        """The entries as columns."""
        return PackedEntries.of(self.entries, partial(check_entries, unit=self.unit))

    @cached_property
    def by_id(self) -> TextMapping[ImageEntry]:
        """The entries by id."""
        return TextMapping(self.packed.ids, self.packed)

    @cached_property
    def path_by_id(self) -> TextMapping[Path]:
        """The file paths by id."""
        return TextMapping(self.packed.ids, self.files(self.packed))

    @property
    def unit(self) -> str:
        """Singular noun for an entry in messages: "image" or "clip"."""
        return _UNITS[self.media]

    def require(self, media: Media, asked_by: str, remedy: str) -> "Manifest":
        """Return this dataset; raise if it has the wrong media type.

        `asked_by`, such as "pipeline propose", begins the message, and `remedy` ends it.
        """
        if self.media != media:
            raise DatasetError(
                f"{asked_by} needs a dataset of {media}, but {self.name!r} is one of "
                f"{self.media}; {remedy}"
            )
        return self

    @property
    def counts(self) -> dict[str, int]:
        """Number of images in each split, in order of first appearance."""
        return self.packed.counts

    def select(self, split: str | None = None) -> PackedEntries:
        """Return the entries of one split, or all of them, in manifest order."""
        if split is None:
            return self.packed
        if split not in self.counts:
            raise DatasetError(
                f"dataset {self.name!r} has no split {split!r}; it has "
                + ", ".join(f"{s} ({n} {self.media})" for s, n in self.counts.items())
            )
        return self.packed.of_split(split)

    def files(self, entries: PackedEntries) -> FilesBelow:
        """Return the path of each entry's file, created on access."""
        return FilesBelow(self.image_root, entries.files)

    def captions(self, split: str | None = None) -> Captions:
        """Return the captions of one split, or all of them, in manifest order."""
        return self.select(split).captions

    def write(self, folder: str | Path) -> None:
        """Write the manifest, existing phrases and metadata, then `dataset.json`."""
        folder = Path(folder)
        file_name(self.name)  # raises: it is in tables, and names outputs
        described: dict[str, Any] = {} if self.media == "images" else {"media": self.media}
        described["manifest_sha256"] = _write_lines(
            folder / MANIFEST_FILE,
            (
                {"id": e.id, "file": e.file, "split": e.split, "captions": list(e.captions)}
                for e in self.entries
            ),
        )
        if self.phrases is not None:
            lines = (phrase.to_json() for phrase in self.phrases)
            described["regions_sha256"] = _write_lines(folder / REGIONS_FILE, lines)
            described["phrases"] = len(self.phrases)
        else:
            (folder / REGIONS_FILE).unlink(missing_ok=True)
        if self.metadata:
            named = (name for name in self.ids if name in self.metadata)
            lines = ({"id": name, "metadata": self.metadata[name]} for name in named)
            described["metadata_sha256"] = _write_lines(folder / METADATA_FILE, lines)
        else:
            (folder / METADATA_FILE).unlink(missing_ok=True)
        if (root := url_of(self.image_root)) is None:
            # As it is named, which is the same on all machines, if links allow that.
            relative = os.path.relpath(self.image_root, folder)
            if _root(folder, relative).resolve() != self.image_root.resolve():
                relative = os.path.relpath(self.image_root.resolve(), folder.resolve())
            root = PurePosixPath(Path(relative)).as_posix()
        # Last, with the SHA-256 of the other files: after a kill they do not match it.
        write_json(
            folder / DATASET_FILE,
            {
                "name": self.name,
                "image_root": root,
                "counts": self.counts,
                self.media: len(self.entries),
                "captions": int(self.packed.num_captions.sum()),
                "licence": self.licence,
                "source": self.source,
                "notes": self.notes,
                **described,
            },
        )


def read_manifest(folder: str | Path) -> Manifest:
    """Read and validate a dataset folder written by `Manifest.write`.

    Parameters
    ----------
    folder : str or Path. A prepared dataset.

    Returns
    -------
    Manifest
        The dataset, a sequence of entries.

    Raises
    ------
    DatasetError
        A file is missing or corrupt, or the manifest does not match `dataset.json`.

    Examples
    --------
    >>> manifest = pipeline.read_manifest("data/mine")
    >>> len(manifest), manifest[0].id, manifest.split("test").ids[0]
    (24, 'scene-00000', 'scene-00002')
    """
    metadata = read_description(folder)
    manifest = _prepared(folder, MANIFEST_FILE)
    require_recorded(manifest, metadata.manifest_sha256)
    try:
        with manifest.open("rb") as stream:
            entries = PackedEntries.of(
                decode_lines(stream, ImageEntry),
                partial(check_entries, unit=_UNITS[metadata.media]),
            )
    except ValueError as error:
        raise DatasetError(f"{manifest}: {error}; prepare the dataset again") from error
    return Manifest(
        metadata.name,
        _root(folder, metadata.image_root),
        entries,
        metadata.licence,
        metadata.source,
        metadata.notes,
        media=metadata.media,
    )


def _root(folder: str | Path, stated: str) -> Path:
    """Return the image root that a description states."""
    if url_of(stated) is not None:
        return Path(stated)
    return Path(os.path.normpath(Path(folder).resolve() / stated))


def read_description(folder: str | Path) -> Description:
    """Read only the `dataset.json` of a dataset."""
    path = _prepared(folder, DATASET_FILE)
    try:
        return decode(path.read_bytes(), Description)
    except ValueError as error:
        raise DatasetError(
            f"{path} is corrupt, or written by a newer version of this package ({error}); prepare "
            "the dataset again"
        ) from error


def read_media(folder: str | Path) -> Media:
    """Return the media type of a dataset."""
    return read_description(folder).media


def require_recorded(
    path: Path,
    sha256: str,
    remedy: str = "changed, or its preparation was interrupted; prepare it again",
) -> None:
    """Raise unless a file exists and has the SHA-256 that `dataset.json` records."""
    if not path.is_file() or sha256_of_file(path) != sha256:
        raise DatasetError(
            f"{path} does not match {DATASET_FILE} (its SHA-256 is not {sha256[:16]}...): it was "
            f"{remedy}"
        )


def _write_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> str:
    """Write JSON values atomically, one per line; return the SHA-256 of the file."""
    with appearing_whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(canonical_json(value) + "\n" for value in values)
    return sha256_of_file(path)


def _prepared(folder: str | Path, name: str) -> Path:
    path = Path(folder, name)
    if not path.is_file():
        raise DatasetError(
            f"{path} not found: {folder} is not a prepared dataset; `pipeline prepare` writes one"
        )
    return path


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
                f"{where}: expected an id such as {phrase.image}#p{seen[phrase.image]}, numbered "
                "from 0 in each image"
            )
        seen[phrase.image] += 1
        if phrase.caption is not None:
            image, _, number = phrase.caption.rpartition("#")
            exists = re.fullmatch("[0-9]{1,9}", number) and int(number) < captions[phrase.image]
            if image != phrase.image or not exists:
                raise DatasetError(f"{where}: its image has no caption {phrase.caption!r}")
        if reason := check_caption(phrase.phrase):
            raise DatasetError(f"{where}: the phrase {reason}")
        if not phrase.boxes:
            raise DatasetError(f"{where} has no box; remove it, or add one")
        for box in phrase.boxes:
            if reason := check_box(box, phrase.size):
                raise DatasetError(f"{where}: its box {list(box)} {reason}")
