"""What a remote folder offers: the index of a feature set, sizes of its files, upper bounds."""

import math
import reprlib
from dataclasses import dataclass

import numpy as np

from pipeline.shards.format import ShardEntry, ShardError
from pipeline.shards.index import INDEX_FILE, FeatureIndex, index_from
from pipeline.shards.remote.contents import (
    CONTENTS_FILE,
    MOST_DESCRIPTION_BYTES,
    Contents,
    OtherSet,
    contents_from,
)
from pipeline.shards.remote.meter import Meter
from pipeline.shards.remote.remote import Remote, read_bounded
from pipeline.shards.remote.retry import ExchangeError, Forbidden, NotFound

# Of a row and of a shard without features: ids, reasons and checksums take far less.
_MOST_REST_OF_ROW, _MOST_REST_OF_SHARD = 1 << 14, 1 << 24
_MOST_OTHER_BYTES = 1 << 32
_MOST_SHARD_BYTES = 1 << 62


@dataclass(frozen=True)
class Offer:
    """A feature set that can be pulled.

    Attributes
    ----------
    remote : the folder.
    index : of the set. index_bytes : the same as received.
    contents : description of the files by `push`; None: the set was copied by other means.
    """

    remote: Remote
    index: FeatureIndex
    index_bytes: bytes
    contents: Contents | None

    @property
    def size(self) -> int:
        """Bytes of all files except the index; of the features alone if no more is known."""
        return self.contents.size if self.contents else sum(map(self.size_of, self.index.shards))

    def size_of(self, entry: ShardEntry) -> int:
        """Return the bytes of a shard; of its features alone if no more is known."""
        if self.contents:
            return self.contents.shard(entry.file, entry.sha256).size
        header = self.index.header
        return entry.rows * math.prod(header.row_shape) * np.dtype(header.dtype).itemsize

    def most_of(self, entry: ShardEntry) -> int:
        """Return an upper bound of the bytes of a shard, from its rows alone."""
        header = self.index.header
        row = math.prod(header.row_shape) * np.dtype(header.dtype).itemsize
        return entry.rows * (row + _MOST_REST_OF_ROW) + _MOST_REST_OF_SHARD


def read_offer(remote: Remote, recipe: str | None, meter: Meter) -> Offer:
    """Read what a remote folder offers, and check it.

    Parameters
    ----------
    remote : the folder.
    recipe : name or hash of the expected recipe. None: any.
    meter : counts what is received.

    Raises
    ------
    NotFound
        No index.
    OtherSet
        Another recipe.
    ExchangeError
        Index or `files.json` have another format, contradict each other, or state sizes that a set
        of these rows cannot have.
    """
    data = read_bounded(remote, INDEX_FILE, MOST_DESCRIPTION_BYTES, meter.log)
    if data is None:
        raise NotFound(
            f"{remote.shown} has no {INDEX_FILE}: it holds no feature set, or one that is still "
            "being pushed; check the URL, or have the push finished"
        )
    try:
        index = index_from(data, f"{remote.shown}/{INDEX_FILE}")
    except ShardError as error:
        begins = data[:40].decode("utf-8", "replace")
        raise ExchangeError(f"{error}; it begins with {begins!r}: check the URL") from error
    header = index.header
    if recipe not in (None, header.recipe_hash, header.recipe.get("name")):
        raise OtherSet(
            f"{remote.shown} holds features of the recipe "
            f"{reprlib.repr(header.recipe.get('name'))} ({header.recipe_hash}), and {recipe!r} was "
            "requested; give another URL, or another recipe"
        )
    try:
        described = read_bounded(remote, CONTENTS_FILE, MOST_DESCRIPTION_BYTES, meter.log)
    except Forbidden as error:
        meter.log(f"{error}; taken as missing, since {INDEX_FILE} could be read")
        described = None
    meter.add(len(data) + len(described or b""))
    contents = None
    if described is not None:
        try:
            contents = contents_from(described, f"{remote.shown}/{CONTENTS_FILE}")
        except ExchangeError as error:
            raise ExchangeError(f"{error}: have the set pushed again") from error
    offer = Offer(remote, index, data, contents)
    for entry in index.shards:
        size, most = offer.size_of(entry), offer.most_of(entry)
        if most > _MOST_SHARD_BYTES:
            raise ExchangeError(
                f"{remote.shown}/{INDEX_FILE}: {reprlib.repr(entry.rows)} rows of the shape "
                f"{reprlib.repr(header.row_shape)} are larger than any disk; check the URL"
            )
        if size > most:
            raise ExchangeError(
                f"{remote.shown}/{CONTENTS_FILE}: {entry.file} of {entry.rows} rows should "
                f"have {size:,} bytes; at most {most:,} were expected: have the set pushed again"
            )
    if contents and sum(file.size for file in contents.others) > _MOST_OTHER_BYTES:
        raise ExchangeError(
            f"{remote.shown}/{CONTENTS_FILE}: card and encoder should have more than "
            f"{_MOST_OTHER_BYTES:,} bytes, which is not plausible: have the set pushed again"
        )
    return offer
