"""Files that tasks read wherever they run: shared paths, or copies in a store by SHA-256."""

import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Protocol

from pipeline.store.errors import FileReadError
from pipeline.store.hashing import sha256_of_file
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.mirror import receive
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import retry
from pipeline.store.objects.urls import absolute

_log = logging.getLogger(__name__)
_receiving = Lock()
# Folders that are removed when the process ends.
_kept: list[tempfile.TemporaryDirectory[str]] = []


@dataclass(frozen=True)
class Shipped:
    """A file or folder that a task reads, as the task carries it."""

    path: Path
    """Where it is on the machine of the command."""
    store: str = ""
    """URL of the folder that has its copies; "": workers see the path."""
    files: tuple[tuple[str, str], ...] = ()
    """Path below the folder, or "" for a file, and SHA-256 of each."""

    def here(self) -> Path:
        """Return its path on this machine; a worker receives it once."""
        if not self.store:
            return self.path
        with _receiving:
            return _received(self)


class Ship(Protocol):
    """Makes files and folders available to tasks."""

    def __call__(self, path: Path) -> Shipped:
        """Return a file or folder as a task carries it."""

    def made(self, name: str, write: Callable[[Path], object]) -> Shipped | None:
        """Return a file that `write` creates for workers that do not share files; else None.

        It is written once; `name` identifies its content.
        """


class _Shared:
    """Paths that workers see as the command does."""

    def __call__(self, path: Path) -> Shipped:
        return Shipped(absolute(path))

    def made(self, name: str, write: Callable[[Path], object]) -> None:
        return None


shared = _Shared()


class Shipping:
    """Copies in a folder of a store, one of each content."""

    def __init__(self, folder: Remote, url: str, log: Callable[[str], None]) -> None:
        self._folder, self._url, self._log = folder, url, log
        self._shipped: dict[Path, Shipped] = {}

    def __call__(self, path: Path) -> Shipped:
        """Upload what the folder lacks."""
        if (known := self._shipped.get(path)) is not None:
            return known
        below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        files = []
        for file in below:
            sha256 = sha256_of_file(file)
            if self._folder.size(sha256) != file.stat().st_size:
                retry(partial(self._folder.put, sha256, file), self._log)
            files.append(("" if file == path else file.relative_to(path).as_posix(), sha256))
        self._shipped[path] = shipped = Shipped(path, self._url, tuple(files))
        return shipped

    def made(self, name: str, write: Callable[[Path], object]) -> Shipped:
        if Path(name) not in self._shipped:
            with tempfile.TemporaryDirectory(prefix="pipeline-") as folder:
                write(Path(folder, name))
                self._shipped[Path(name)] = self(Path(folder, name))
        return self._shipped[Path(name)]


def scratch() -> Path:
    """Return a folder for temporary files: a Dask worker's own, which ends with it."""
    if (distributed := sys.modules.get("distributed")) is not None:
        try:
            return Path(distributed.get_worker().local_directory)
        except ValueError:  # not on a worker
            pass
    return Path(tempfile.gettempdir())


@lru_cache(maxsize=64)
def _received(shipped: Shipped) -> Path:
    remote = open_remote(shipped.store)
    with ExitStack() as failed:
        kept = tempfile.TemporaryDirectory(prefix="shipped-", dir=scratch())
        folder = Path(failed.enter_context(kept))
        for name, sha256 in shipped.files:
            # Its name may be part of what is recorded, such as that of a weights file.
            path = folder / shipped.path.name / name if name else folder / shipped.path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            retry(partial(receive, remote, sha256, path), _log.warning)
            if sha256_of_file(path) != sha256:
                raise FileReadError(
                    f"{remote.shown}/{sha256} is not the copy of {shipped.path} that the command "
                    "has made; delete it there, and rerun the command"
                )
        failed.pop_all()
    _kept.append(kept)
    return folder / shipped.path.name
