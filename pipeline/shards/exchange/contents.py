"""`files.json`: sizes and checksums of a shared set's files, and where features lie in its shards.

`push` writes it beside the shards. A shard's bytes are those of its features and the rest: ids,
status, checksums of rows. The rest has a checksum of its own, so that it can be had and checked
without the features, and says then where each row is.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.files import parse_json
from pipeline.hashing import sha256_of_file
from pipeline.shards.exchange.remote import ExchangeError
from pipeline.shards.index import INDEX_FILE, FeatureIndex
from pipeline.shards.sandbox import require_unbroken
from pipeline.shards.shard_file import ShardFile
from pipeline.shards.tools.dataset_card import CARD_FILE

CONTENTS_FILE = "files.json"
ENCODER_SUFFIX = ".encoder"
MOST_DESCRIPTION_BYTES = 1 << 26
"""Of an index or a `files.json`: more than those of ten thousand shards."""

_FORMAT, _VERSION = "pipeline-features-files", 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20

Spans = list[tuple[int, int]]
"""Start and stop of runs of bytes or rows, ascending and apart from each other."""


class OtherSet(ExchangeError):
    """A place holds a set that another one may not replace, or not the set that was asked for."""


@dataclass(frozen=True)
class Transfer:
    """What was moved.

    Attributes
    ----------
    index : of the set that is there now.
    moved : bytes that were sent, or that came.
    size : bytes of the whole shared set, less its index.
    """

    index: FeatureIndex
    moved: int
    size: int


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file, its bytes and their SHA-256."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SharedShard:
    """A shard.

    Attributes
    ----------
    file, size, sha256 : of the whole file.
    features : where the stored features lie in it.
    rest_sha256 : SHA-256 of all other bytes, in their order.
    """

    file: str
    size: int
    sha256: str
    features: Spans
    rest_sha256: str

    @property
    def rest(self) -> Spans:
        """Where all other bytes lie."""
        edges = [0, *(edge for span in self.features for edge in span), self.size]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start, stop) for start, stop in pairs if start < stop]


@dataclass(frozen=True)
class Contents:
    """What a shared set consists of.

    Attributes
    ----------
    recipe_hash : of its features.
    shards : in row order.
    card : SHARDS.md, if it has one.
    encoder : the files of the encoder that its captions were made with, which lie beside the set.
    """

    recipe_hash: str
    shards: tuple[SharedShard, ...]
    card: SharedFile | None = None
    encoder: tuple[SharedFile, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, SharedShard]:
        return {shard.file: shard for shard in self.shards}

    @property
    def others(self) -> list[SharedFile]:
        """The files that are no shards."""
        return [*self.encoder, *([self.card] if self.card else [])]

    @property
    def size(self) -> int:
        """Bytes of all files but the index and this one."""
        return sum(file.size for file in self.shards) + sum(file.size for file in self.others)

    def text(self) -> str:
        """Return `files.json`."""
        values = {"format": _FORMAT, "format_version": _VERSION, **asdict(self)}
        return json.dumps(values, indent=1, sort_keys=True) + "\n"

    def shard(self, name: str, sha256: str) -> SharedShard:
        """Return the shard of this name.

        Raises
        ------
        ExchangeError
            It is not named, or has another SHA-256.
        """
        shard = self._by_name.get(name)
        if shard is not None and shard.sha256 == sha256:
            return shard
        raise ExchangeError(
            f"{CONTENTS_FILE} does not name {name} with the SHA-256 of {INDEX_FILE}: they are of "
            "two sets, or the set is just being pushed; wait for that, or have it pushed again"
        )


def contents_of(folder: Path, index: FeatureIndex) -> Contents:
    """Return what the set in a folder consists of; of features only their places are looked at.

    Raises
    ------
    DamagedShard
        A shard cannot be opened.
    ExchangeError
        The encoder's folder has what no encoder has.
    """
    require_unbroken([folder / entry.file for entry in index.shards], features=False)
    encoder = encoder_of(folder)
    files = sorted(encoder.iterdir()) if encoder.is_dir() else []
    for path in files:
        if not path.is_file() or not _NAME.fullmatch(path.name):
            raise ExchangeError(
                f"{path} is no file with a plain name (letters, digits, . _ + @ = -), as the files "
                "of an encoder are; remove it, or move it elsewhere"
            )
    card = folder / CARD_FILE
    return Contents(
        index.header.recipe_hash,
        tuple(_shard_of(folder / entry.file, entry.sha256) for entry in index.shards),
        _file_of(card) if card.is_file() else None,
        tuple(map(_file_of, files)),
    )


def encoder_of(folder: Path) -> Path:
    """Return where the encoder of a feature folder lies."""
    home = folder.resolve()
    return home.with_name(home.name + ENCODER_SUFFIX)


def _file_of(path: Path) -> SharedFile:
    return SharedFile(path.name, path.stat().st_size, sha256_of_file(path))


def _shard_of(path: Path, sha256: str) -> SharedShard:
    ShardFile(path)  # or it says what is wrong with it
    size = path.stat().st_size
    shard = SharedShard(path.name, size, sha256, feature_spans(path), "")
    digest = hashlib.sha256()
    for block in blocks_of(path, shard.rest):
        digest.update(block)
    return SharedShard(path.name, size, sha256, shard.features, digest.hexdigest())


def blocks_of(path: Path, spans: Iterable[tuple[int, int]]) -> Iterable[bytes]:
    """Yield the bytes of a file in some spans, a bounded number at a time."""
    with path.open("rb") as stream:
        for start, stop in spans:
            stream.seek(start)
            while start < stop and (block := stream.read(min(_BLOCK, stop - start))):
                yield block
                start += len(block)


def feature_spans(path: Path, rows: np.ndarray | None = None) -> Spans:
    """Return where the stored features of some rows lie in a shard.

    Parameters
    ----------
    path : of the shard; its features need not be there.
    rows : (n,) int row numbers. None: all.
    """
    found: Spans = []
    with h5py.File(path, "r") as file:
        features = file["features"]
        wanted = np.ones(len(features), bool)
        if rows is not None:
            wanted[:] = False
            wanted[rows] = True
        if features.chunks is None:
            size = features.id.get_storage_size() // len(features)
            first = features.id.get_offset()
            found = [
                (first + row * size, first + (row + 1) * size)
                for row in wanted.nonzero()[0].tolist()
            ]
        else:
            step = features.chunks[0]

            def visit(chunk: Any) -> None:
                row = chunk.chunk_offset[0]
                if wanted[row : row + step].any():
                    found.append((chunk.byte_offset, chunk.byte_offset + chunk.size))

            features.id.chunk_iter(visit)
    return joined(found)


def joined(spans: Sequence[tuple[int, int]], gap: int = 0) -> Spans:
    """Return spans in order, joined where no more than `gap` lies between them."""
    result: Spans = []
    for start, stop in sorted(spans):
        if result and start - result[-1][1] <= gap:
            result[-1] = result[-1][0], max(stop, result[-1][1])
        else:
            result.append((start, stop))
    return result


def contents_from(data: bytes, where: str) -> Contents:
    """Read `files.json`, whoever wrote it.

    Parameters
    ----------
    data : its bytes. where : it came from, for messages.

    Raises
    ------
    ExchangeError
        It is no such file, names files that could leave the folder, or places that cannot be.
    """
    try:
        values = parse_json(data)
        if (values["format"], values["format_version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"another format than {_FORMAT!r} version {_VERSION}")
        shards = tuple(_checked_shard(entry) for entry in values["shards"])
        encoder = tuple(_checked_file(entry) for entry in values["encoder"])
        card = _checked_file(values["card"]) if values["card"] is not None else None
        if card is not None and card.file != CARD_FILE:
            raise ValueError(f"its card is not called {CARD_FILE}")
        for names in ([s.file for s in shards], [f.file for f in encoder]):
            if len(set(names)) != len(names):
                raise ValueError("two files have one name")
        return Contents(str(values["recipe_hash"]), shards, card, encoder)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        begins = data[:40].decode("utf-8", "replace")
        raise ExchangeError(
            f"{where} is not what `pipeline shards push` writes ({error}); it begins with "
            f"{begins!r}: have the set pushed again"
        ) from error


def _checked_file(entry: Any) -> SharedFile:
    file = SharedFile(entry["file"], entry["size"], entry["sha256"])
    if not isinstance(file.file, str) or not _NAME.fullmatch(file.file):
        raise ValueError("a file has no plain name")
    if not isinstance(file.sha256, str) or not _SHA256.fullmatch(file.sha256):
        raise ValueError(f"the SHA-256 of {file.file} is none")
    if type(file.size) is not int or not 0 <= file.size < 1 << 62:
        raise ValueError(f"the size of {file.file} is none")
    return file


def _checked_shard(entry: Any) -> SharedShard:
    file = _checked_file(entry)
    end, spans = -1, []
    for start, stop in entry["features"]:
        if type(start) is not int or type(stop) is not int or not end < start < stop <= file.size:
            raise ValueError(f"the features of {file.file} lie where they cannot")
        spans.append((start, stop))
        end = stop
    rest = entry["rest_sha256"]
    if not isinstance(rest, str) or not _SHA256.fullmatch(rest):
        raise ValueError(f"the SHA-256 of the rest of {file.file} is none")
    return SharedShard(file.file, file.size, file.sha256, spans, rest)
