"""`files.json`: sizes and checksums of a shared set's files, and byte ranges of the features.

`push` writes it next to the shards. The bytes of a shard are those of its features and the rest:
ids, status, checksums of rows. The rest has its own checksum, so that it can be fetched and
verified without the features; it contains the location of each row.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline.store.hashing import sha256_of_file
from pipeline.store.objects.retry import RemoteError
from pipeline.store.schema import Sha256, decode_format
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex
from pipeline.store.shards.reader import ShardFile
from pipeline.store.share.cards.card import CARD_FILE
from pipeline.store.share.cards.croissant import CROISSANT_FILE
from pipeline.store.share.spans import Spans, feature_spans, sha256_of_spans

CONTENTS_FILE = "files.json"
ENCODER_SUFFIX = ".encoder"

_FORMAT, _VERSION = "pipeline-features-files", 1
# `*.part` is reserved for unfinished files.
_NAME = r"\A(?!.*\.part\Z)[A-Za-z0-9][A-Za-z0-9._+@=-]{0,199}\Z"

_Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of a shared set."""

    file: _Name
    size: _Size
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class SharedShard:
    """Layout of a shard file."""

    file: _Name
    size: _Size
    sha256: Sha256
    features: Spans
    rest_sha256: Sha256  # of all other bytes, in file order

    @property
    def rest(self) -> Spans:
        """Byte ranges of everything except the features."""
        edges = [0, *(edge for span in self.features for edge in span), self.size]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start, stop) for start, stop in pairs if start < stop]


@dataclass(frozen=True)
class Contents:
    """Files of a shared set."""

    shards: tuple[SharedShard, ...]  # in row order
    card: SharedFile | None = None
    encoder: tuple[SharedFile, ...] = ()  # of captions, stored next to the set
    croissant: SharedFile | None = None

    @cached_property
    def _by_name(self) -> dict[str, SharedShard]:
        return {shard.file: shard for shard in self.shards}

    @property
    def others(self) -> list[SharedFile]:
        """All files except the shards."""
        return [*self.encoder, *self.descriptions]

    @property
    def descriptions(self) -> list[SharedFile]:
        """The files that describe the set to people and dataset catalogues."""
        return [file for file in (self.card, self.croissant) if file is not None]

    @property
    def size(self) -> int:
        """Size in bytes of all files except the index and `files.json`."""
        return sum(file.size for file in self.shards) + sum(file.size for file in self.others)

    def text(self) -> str:
        """Return `files.json`."""
        values = {"format": _FORMAT, "format_version": _VERSION, **asdict(self)}
        if self.croissant is None:
            del values["croissant"]
        return json.dumps(values, indent=1, sort_keys=True) + "\n"

    def shard(self, name: str, sha256: str) -> SharedShard:
        """Return the shard with this name and SHA-256; raise RemoteError if it is not listed."""
        shard = self._by_name.get(name)
        if shard is not None and shard.sha256 == sha256:
            return shard
        raise RemoteError(
            f"{CONTENTS_FILE} does not list {name} with the SHA-256 of {INDEX_FILE}: they belong "
            "to two sets, or a push is in progress; wait for it, or push the set again"
        )


def contents_of(folder: Path, index: FeatureIndex) -> Contents:
    """Return the files of a set with their SHA-256; features are located, not parsed."""
    encoder = encoder_of(folder)
    files = sorted(encoder.iterdir()) if encoder.is_dir() else []
    for path in files:
        if not path.is_file() or not re.search(_NAME, path.name):
            raise RemoteError(
                f"{path} is not a regular file with a plain name (letters, digits, . _ + @ = -), "
                "as encoder files must be; delete it, or move it elsewhere"
            )
    card, croissant = (
        _file_of(path) if (path := folder / name).is_file() else None
        for name in (CARD_FILE, CROISSANT_FILE)
    )
    shards = tuple(_shard_of(folder / entry.file, entry.sha256) for entry in index.shards)
    return Contents(shards, card, tuple(map(_file_of, files)), croissant)


def encoder_of(folder: Path) -> Path:
    """Return the encoder folder of a feature folder."""
    home = folder.resolve()
    return home.with_name(home.name + ENCODER_SUFFIX)


def _file_of(path: Path) -> SharedFile:
    return SharedFile(path.name, path.stat().st_size, sha256_of_file(path))


def _shard_of(path: Path, sha256: str) -> SharedShard:
    ShardFile(path)  # raises if it is damaged
    shard = SharedShard(path.name, path.stat().st_size, sha256, feature_spans(path), "")
    rest_sha256 = sha256_of_spans(path, shard.rest)
    return SharedShard(shard.file, shard.size, sha256, shard.features, rest_sha256)


def contents_from(data: bytes, where: str) -> Contents:
    """Parse an untrusted `files.json` from the location `where`."""
    try:
        contents = decode_format(data, Contents, _FORMAT, _VERSION)
        for files in (contents.shards, contents.encoder):
            if len({file.file for file in files}) != len(files):
                raise ValueError("two files have the same name")
        for file, name in ((contents.card, CARD_FILE), (contents.croissant, CROISSANT_FILE)):
            if file is not None and file.file != name:
                raise ValueError(f"found {file.file!r}, expected {name}")
        for shard in contents.shards:
            edges = [-1, *(edge for span in shard.features for edge in span)]
            if sorted({*edges}) != edges or edges[-1] > shard.size:
                raise ValueError(f"invalid byte ranges of the features of {shard.file}")
    except ValueError as error:
        begins = data[:40].decode("utf-8", "replace")
        raise RemoteError(
            f"{where} was not written by `pipeline shards push` ({error}); it begins with "
            f"{begins!r}"
        ) from error
    return contents
