"""Contents of a remote folder: index of a feature set, file sizes and their upper bounds."""

import math
import reprlib
from dataclasses import dataclass

import numpy as np

from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import MOST_DESCRIPTION_BYTES, read_bounded
from pipeline.store.objects.retry import RemoteError
from pipeline.store.shards.format import ShardEntry, ShardError
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, index_from
from pipeline.store.share.contents import (
    CONTENTS_FILE,
    Contents,
    contents_from,
)
from pipeline.store.share.meter import Meter

# Upper bounds without features: ids, failure reasons and checksums need far less.
_MOST_REST_OF_ROW, _MOST_REST_OF_SHARD = 1 << 14, 1 << 24
_MOST_OTHER_BYTES = 1 << 32
_MOST_SHARD_BYTES = 1 << 62


@dataclass(frozen=True)
class Offer:
    """A remote feature set."""

    remote: Remote
    index: FeatureIndex
    index_bytes: bytes
    contents: Contents | None  # None: the set was copied by other means than `push`

    @property
    def size(self) -> int:
        """Size in bytes without the index; of the features alone if unknown."""
        return self.contents.size if self.contents else sum(map(self.size_of, self.index.shards))

    def size_of(self, entry: ShardEntry) -> int:
        """Return the size of a shard in bytes; of its features alone if unknown."""
        if self.contents:
            return self.contents.shard(entry.file, entry.sha256).size
        return entry.rows * self._row_bytes

    def most_of(self, entry: ShardEntry) -> int:
        """Return an upper bound of the size of a shard in bytes, from its row count."""
        return entry.rows * (self._row_bytes + _MOST_REST_OF_ROW) + _MOST_REST_OF_SHARD

    @property
    def _row_bytes(self) -> int:
        # Not with numpy: the shape of an untrusted index may be larger than any integer of it.
        header = self.index.header
        return math.prod(header.row_shape) * np.dtype(header.dtype).itemsize


def read_offer(remote: Remote, recipe: str | None, meter: Meter) -> Offer:
    """Read and validate the contents of a remote folder; `recipe`: name, hash or None (any)."""
    data = read_bounded(remote, INDEX_FILE, MOST_DESCRIPTION_BYTES, meter.log)
    if data is None:
        raise RemoteError(
            f"{remote.shown} has no {INDEX_FILE}: it is not a feature set, or a push is not "
            "finished; check the URL, or finish the push",
            "missing",
        )
    try:
        index = index_from(data, f"{remote.shown}/{INDEX_FILE}")
    except ShardError as error:
        begins = data[:40].decode("utf-8", "replace")
        raise RemoteError(f"{error}; it begins with {begins!r}: check the URL") from error
    header = index.header
    if recipe not in (None, header.recipe_hash, header.recipe.get("name")):
        raise RemoteError(
            f"{remote.shown} holds features of the recipe "
            f"{reprlib.repr(header.recipe.get('name'))} ({header.recipe_hash}), and {recipe!r} was "
            "requested; choose another URL, or another recipe"
        )
    try:
        described = read_bounded(remote, CONTENTS_FILE, MOST_DESCRIPTION_BYTES, meter.log)
    except RemoteError as error:
        if error.cause != "forbidden":  # object stores also return it for missing keys
            raise
        meter.log(f"{error}; treated as missing, since {INDEX_FILE} is readable")
        described = None
    meter.add(len(data) + len(described or b""))
    where = f"{remote.shown}/{CONTENTS_FILE}"
    try:
        contents = contents_from(described, where) if described is not None else None
    except RemoteError as error:
        raise RemoteError(f"{error}: push the set again") from error
    offer = Offer(remote, index, data, contents)
    for entry in index.shards:
        size, most = offer.size_of(entry), offer.most_of(entry)
        if most > _MOST_SHARD_BYTES:
            raise RemoteError(
                f"{remote.shown}/{INDEX_FILE}: {reprlib.repr(entry.rows)} rows of shape "
                f"{reprlib.repr(header.row_shape)} are larger than any disk; check the URL"
            )
        if size > most:
            raise RemoteError(
                f"{where}: {entry.file} of {entry.rows} rows has {size:,} bytes, expected at most "
                f"{most:,}: push the set again"
            )
    if contents and sum(file.size for file in contents.others) > _MOST_OTHER_BYTES:
        raise RemoteError(
            f"{where}: card and encoder have more than {_MOST_OTHER_BYTES:,} bytes, which is "
            "implausible: push the set again"
        )
    return offer
