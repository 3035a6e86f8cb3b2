"""WebDataset shards: tar files in which members with the same basename form one sample."""

import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers import image_files
from pipeline.datasets.readers.tables.stored_images import ImagesInPlace, StoredImages
from pipeline.datasets.readers.tables.table import RowFault, Table
from pipeline.datasets.readers.tables.unpacked import MAX_BYTES
from pipeline.store.inner_files import name_of, open_file
from pipeline.store.objects.urls import shown
from pipeline.store.schema import SchemaError, decode_given

SUFFIX = ".tar"

_TEXTS = (".txt", ".caption", ".text")
_MAX_TEXT_BYTES = 2**24
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MOST_FILES = 100_000


@dataclass
class _Sample:
    """The members of one basename found so far."""

    image: str | None = None
    text: str | None = None
    metadata: dict[str, Any] | None = None
    error: RowFault | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The record; a text that is not blank takes precedence over a caption in the metadata."""
        values = {**(self.metadata or {}), "path": self.image}
        text = self.text
        if text is not None and (text.strip() or not {"caption", "captions"} & values.keys()):
            values.pop("captions", None)
            values["caption"] = text
        return values


def expand_braces(pattern: Path) -> list[Path]:
    """Return the files of a pattern such as `shard-{000..009}.tar`; without braces, itself."""
    text = str(pattern)
    match = _RANGE.search(text)
    if match is None or pattern.exists():
        return [pattern]
    low, high = int(match[1]), int(match[2])
    if not 0 <= high - low < _MOST_FILES:
        raise DatasetError(
            f"{pattern}: the range {match[0]} has {max(high - low + 1, 0)} numbers; "
            f"expected 1 to {_MOST_FILES}"
        )
    numbers = (str(n).zfill(len(match[1])) for n in range(low, high + 1))
    names = (Path(text[: match.start()] + number + text[match.end() :]) for number in numbers)
    return [path for name in names for path in expand_braces(name)]


def read_tar(path: Path, images: StoredImages) -> Table:
    """Return the samples of a shard in order of first appearance.

    A sample has one image and its captions: in a `.txt` member (or `.caption`, `.text`), else in
    the object of a `.json` member, whose other values are kept. Other members are skipped, and
    counted in the notes by suffix once all records have been read. Links, devices, names that leave
    the folder, sparse and oversized members are a `RowFault`.
    """
    notes: dict[str, Any] = {}
    records = _records(path, images, notes)
    return Table(shown(path), "sample", records, images_inside=True, notes=notes)


def image_paths(tars: Sequence[Path], folder: Path) -> Iterator[str]:
    """Yield the path below a folder of each image in some tar files without captions, in order."""
    for path in tars:
        # Names are those of one tar file.
        images = ImagesInPlace(folder)
        with _opened(path) as shard:
            for member in _members(shard):
                if PurePosixPath(member.name).suffix.lower() in image_files.SUFFIXES:
                    try:
                        yield _image(path, shard, member, images)
                    except RowFault as error:
                        raise DatasetError(
                            f"{shown(path)}: {error.reason}; write the tar file again"
                        ) from error


def _records(
    path: Path, images: StoredImages, notes: dict[str, Any]
) -> Iterator[tuple[int, Mapping[str, Any] | RowFault]]:
    samples: dict[str, _Sample] = {}
    ignored: Counter[str] = Counter()
    dotted: dict[str, set[str]] = {}  # suffixes after the last dot, by what precedes it
    with _opened(path) as shard:
        for member in _members(shard):
            name = PurePosixPath(member.name)
            stem, _, suffix = name.name.partition(".")
            suffix = f".{suffix.lower()}"
            if suffix not in (*image_files.SUFFIXES, *_TEXTS, ".json"):
                ignored[suffix] += 1
                dotted.setdefault(str(name.with_suffix("")), set()).add(name.suffix.lower())
                continue
            sample = samples.setdefault(str(name.parent / stem), _Sample())
            try:
                _add(sample, path, shard, member, suffix, images)
            except RowFault as error:
                sample.error = sample.error or error
    if ignored:
        notes["members_ignored"] = dict(sorted(ignored.items()))
    for number, (key, sample) in enumerate(samples.items(), start=1):
        if sample.error is None and sample.image is None:
            sample.error = RowFault("no image", f"the sample {key!r} has no image", key)
        yield number, sample.error or sample.values
    for number, (key, suffixes) in enumerate(dotted.items(), start=len(samples) + 1):
        if suffixes & image_files.SUFFIXES and suffixes & {*_TEXTS, ".json"}:
            reason = f"{key!r} has a dot, at which the name of a sample ends; rename its members"
            yield number, RowFault("dot in a name", reason, key)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar file, and explain what is wrong with it while it is read."""
    try:
        with open_file(path) as stream, tarfile.open(fileobj=stream, mode="r:") as shard:
            yield shard
    except tarfile.TarError as error:
        raise DatasetError(
            f"{shown(path)} is not an uncompressed tar file, or is corrupt ({error}); decompress "
            "it, or download it again"
        ) from error
    except OSError as error:
        raise DatasetError(
            f"{shown(path)} cannot be read ({error.strerror}); check the path"
        ) from error


def _members(shard: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members except folders and hidden files; raise ReadError at a truncation."""
    while (member := shard.next()) is not None:
        # A shard may have a million members; forget those already read.
        shard.members.clear()  # type: ignore[attr-defined]
        if not (member.isdir() or PurePosixPath(member.name).name.startswith(".")):
            yield member
    # tarfile silently stops at a corrupt header, and at a truncation between two members.
    stream = cast(io.BufferedIOBase, shard.fileobj)
    stream.seek(shard.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"no member and no end at byte {shard.offset}")


def _add(
    sample: _Sample,
    path: Path,
    shard: tarfile.TarFile,
    member: tarfile.TarInfo,
    suffix: str,
    images: StoredImages,
) -> None:
    name = PurePosixPath(member.name).as_posix()
    if suffix in image_files.SUFFIXES:
        if sample.image is not None:
            raise RowFault(
                "several images",
                f"{name_of(sample.image)!r} and {name!r} are images of one sample",
                name,
            )
        sample.image = _image(path, shard, member, images)
        return
    try:
        text = _stream(shard, member, _MAX_TEXT_BYTES).read().decode("utf-8-sig")
        value = None if suffix != ".json" else decode_given(text, Any)
    except (UnicodeDecodeError, SchemaError) as error:
        raise RowFault("malformed member", f"{name!r}: {error}", name) from error
    if (sample.text if suffix != ".json" else sample.metadata) is not None:
        raise RowFault("several captions", f"{name!r} is the second of its sample", name)
    if suffix != ".json":
        sample.text = text
    else:
        sample.metadata = value if isinstance(value, dict) else {"captions": value}


def _image(
    path: Path, shard: tarfile.TarFile, member: tarfile.TarInfo, images: StoredImages
) -> str:
    """Add the image of a member, and return its path."""
    name, stream = PurePosixPath(member.name).as_posix(), _stream(shard, member, MAX_BYTES)
    return images.member(path, member.offset_data, name, stream)


def _stream(shard: tarfile.TarFile, member: tarfile.TarInfo, limit: int) -> io.BufferedIOBase:
    """Return a member's bytes as a stream; raise `RowFault` unless it is a file of usual size."""
    name = PurePosixPath(member.name).as_posix()
    if not member.isreg() or member.issparse():
        raise RowFault("not a regular file", f"{name!r} is a link, a device or sparse", name)
    if member.size > limit:
        raise RowFault("member too large", f"{name!r} has {member.size} bytes, over {limit}", name)
    return cast(io.BufferedIOBase, shard.extractfile(member))
