"""Files of a folder, here or wherever fsspec reaches: read in ranges, and written whole."""

import errno
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

from pipeline.shards.remote.remote import (
    NotThere,
    RemoteError,
    TransientError,
    without_secrets,
)

_BLOCK = 1 << 23
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}

# Where fsspec itself does not say which package a protocol needs.
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "abfs": "adlfs",
    "az": "adlfs",
    "hf": "huggingface_hub",
}


class FolderRemote:
    """A folder of a file system that fsspec knows.

    Attributes
    ----------
    shown : the URL without user, password and query.
    """

    def __init__(self, url: str) -> None:
        """Open the file system; nothing is looked at yet.

        Raises
        ------
        RemoteError
            fsspec does not know the protocol, lacks the package for it, or is not let in.
        """
        import fsspec

        self._url = url.rstrip("/") or url
        self.shown = without_secrets(self._url)
        protocol = url.partition("://")[0]
        try:
            self._files, self._path = fsspec.url_to_fs(self._url)
        except ImportError as error:
            package = _PACKAGES.get(protocol, f"that fsspec names for it ({error})")
            raise RemoteError(
                f"{self.shown}: {protocol}:// needs the package {package}, which is not installed; "
                "install it and give the same command again"
            ) from error
        except ValueError as error:
            raise RemoteError(
                f"{self.shown}: no such place ({error}); a folder, file://, http://, https://, "
                "dvc:REMOTE/PATH, or a protocol of fsspec such as s3:// was expected"
            ) from error
        except Exception as error:
            raise RemoteError(
                f"{self.shown} cannot be opened ({_text(error)}); check the URL, and the "
                "credentials that its back end takes from the environment"
            ) from error

    def beside(self, suffix: str) -> "FolderRemote":
        """Return the folder whose name has a suffix more."""
        here = self._url if "://" in self._url else str(Path(self._url).resolve())
        return FolderRemote(here + suffix)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Generator[bytes]:
        """Yield bytes of a file; see `Remote.read`.

        Raises
        ------
        NotThere, TransientError, RemoteError
        """
        if stop is None:
            with self._explained(name):
                stop = int(self._files.size(f"{self._path}/{name}"))
        while start < stop:
            until = min(start + _BLOCK, stop)
            with self._explained(name):
                block = self._files.cat_file(f"{self._path}/{name}", start=start, end=until)
            if block:
                yield block
            if len(block) < until - start:
                return
            start = until

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if it is not there.

        Raises
        ------
        TransientError, RemoteError
        """
        try:
            with self._explained(name):
                self._files.invalidate_cache()
                return int(self._files.size(f"{self._path}/{name}"))
        except NotThere:
            return None

    def send(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file as `NAME.part`, look at its size, and rename it.

        Raises
        ------
        TransientError, RemoteError
        """
        path, part, sent = f"{self._path}/{name}", f"{self._path}/{name}.part", 0
        blocks = iter(blocks)
        try:
            with self._explained(name):
                self._files.makedirs(self._path, exist_ok=True)
                stream = self._files.open(part, "wb")
            with _closing(stream, self._explained(name)):
                for block in blocks:
                    with self._explained(name):
                        stream.write(block)
                    sent += len(block)
                with self._explained(name):
                    _wait_for_disk(stream)
            if (there := self.size(f"{name}.part")) != sent:
                raise TransientError(
                    f"{self.shown}/{name}: {sent:,} bytes were sent, {there} arrived"
                )
            with self._explained(name):
                self._files.mv(part, path)
        except BaseException:
            with suppress(Exception):
                self._files.rm_file(part)
            raise

    @contextmanager
    def _explained(self, name: str) -> Generator[None]:
        """Turn what a back end raises, which has no common base, into named errors."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(f"{self.shown}/{name} is not there") from error
        except (
            PermissionError,
            NotImplementedError,
            IsADirectoryError,
            NotADirectoryError,
        ) as error:
            raise RemoteError(
                f"{self.shown}/{name}: {_text(error)}; check the path, and who may read and write "
                "there"
            ) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _LASTING:
                raise RemoteError(
                    f"{self.shown}/{name}: {_text(error)}; make room there, or push elsewhere"
                ) from error
            raise TransientError(f"{self.shown}/{name}: {_text(error)}") from error


@contextmanager
def _closing(stream: Any, explained: Any) -> Generator[None]:
    """Close a stream, as what it still holds is written then; a failure before counts more."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            stream.close()
        raise
    with explained:
        stream.close()


def _wait_for_disk(stream: Any) -> None:
    """Wait until the bytes of a local file are on the disk; other back ends see to that."""
    stream.flush()
    with suppress(AttributeError, UnsupportedOperation):
        os.fsync(stream.fileno())


def _text(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{': ' if text else ''}{text}"
