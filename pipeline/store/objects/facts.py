"""What a store states of a file: its size, and what identifies its bytes."""

import errno
import hashlib
from typing import Any, NamedTuple

from pipeline.store.objects.retry import RemoteError

# What identifies the bytes of a file in the back ends that have it, then what only dates them.
_DIGESTS = ("ETag", "etag", "Content-MD5", "md5Hash", "content_md5", "generation", "blob_id")
_DATES = ("Last-Modified", "LastModified", "last_modified", "mtime", "created")


class Facts(NamedTuple):
    """What a store states of a file."""

    size: int
    version: str  # an ETag or digest, else a time; "" if the store has none
    by_bytes: bool  # whether other bytes have another version for certain

    @property
    def stamp(self) -> int:
        """63 bits of the digest of the version; -1 without one."""
        digest = hashlib.sha256(self.version.encode()).digest()
        return int.from_bytes(digest[:8]) >> 1 if self.version else -1

    @classmethod
    def of(cls, info: dict[str, Any]) -> "Facts":
        """Return the facts in what fsspec calls the info of a file."""
        if info["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, "a folder, not a file")
        if info["size"] is None:
            raise RemoteError("the server does not state the size of the file", "no ranges")
        name = next((name for name in (*_DIGESTS, *_DATES) if info.get(name)), "")
        value = info.get(name, "")
        # A time may be an object in one answer of a back end and a number in another.
        version = str(value.timestamp() if hasattr(value, "timestamp") else value)
        weak = version.startswith("W/") or name in ("", *_DATES)
        return cls(int(info["size"]), version, not weak)
