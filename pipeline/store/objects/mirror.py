"""A folder of small files in a store, as a folder of this machine for the time of its use."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.store.hashing import sha256_of_file
from pipeline.store.objects.locate import open_remote, open_writable
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import retry
from pipeline.store.objects.urls import url_of

_log = logging.getLogger(__name__)

Log = Callable[[str], None]


@contextmanager
def mirrored(folder: Path, log: Log) -> Iterator[Path]:
    """Yield a folder itself, or a copy of one in a store, to which changed files return at the end.

    After an error the store stays as it was.
    """
    if (url := url_of(folder)) is None:
        yield folder
        return
    remote = open_remote(url)
    with TemporaryDirectory(prefix="pipeline-") as copied:
        copy = Path(copied, folder.name)
        for name in remote.files():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            retry(partial(receive, remote, name, copy / name), log)
        before = _digests(copy)
        yield copy
        for name, sha256 in _digests(copy).items():
            if before.get(name) != sha256:
                retry(partial(remote.put, name, copy / name), log)


@contextmanager
def sent_when_written(path: Path, log: Log = _log.warning) -> Iterator[Path]:
    """Yield a path itself, or that of a temporary file, which is put to its URL at the end."""
    if (url := url_of(path)) is None:
        yield path
        return
    with TemporaryDirectory(prefix="pipeline-") as folder:
        file = Path(folder, path.name)
        yield file
        retry(partial(open_writable(url.rpartition("/")[0]).put, path.name, file), log)


def receive(remote: Remote, name: str, path: Path) -> None:
    """Copy a file of a store to a path, in one sequential read."""
    with path.open("wb") as stream:
        remote.read(name, lambda block: bool(stream.write(block)))


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {file.relative_to(folder).as_posix(): sha256_of_file(file) for file in files}
