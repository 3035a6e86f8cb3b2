"""Conditions of a process: environment, limits, clocks, locks, signals, shared memory."""

import errno
import fcntl
import mmap
import os
import pwd
import resource
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.endurance.mounts import mounted
from bench.endurance.situation import Setting, Situation


def _inside(do: Callable[[], object], refusable: bool = False) -> Situation:
    """Return the situation of a process that has done something before its command."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        yield Setting(folder, do)

    return Situation(arrange, refusable)


def _environment(*removed: str, **variables: str) -> Situation:
    """Return the situation of changed environment variables."""

    def change() -> None:
        for name in removed:
            os.environ.pop(name, None)
        os.environ.update(variables)
        tempfile.tempdir = None  # which the parent has found

    return _inside(change)


def _mounts(*arguments: str, refusable: bool = False) -> Situation:
    """Return the situation of a process with mounts of its own."""

    @contextmanager
    def arrange(folder: Path) -> Iterator[Setting]:
        yield Setting(folder, mounted(folder, arguments))

    return Situation(arrange, refusable)


def _clock(offset: float) -> Callable[[], None]:
    """Return what moves the clock by seconds."""

    def move() -> None:
        real = time.time
        time.time = lambda: real() + offset

    return move


@contextmanager
def _future(folder: Path) -> Iterator[Setting]:
    """Set the times of all files to the future."""
    for path in folder.rglob("*"):
        os.utime(path, (2**32, 2**32), follow_symlinks=False)
    yield Setting(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[Setting]:
    """Hold an exclusive lock on every HDF5 file, as a program does that writes it."""
    streams = [path.open("rb") for path in sorted(folder.rglob("*.h5"))]
    for stream in streams:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield Setting(folder)
    for stream in streams:
        stream.close()


def _without_locks() -> None:
    """Refuse every lock, as some network disks do."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = fcntl.lockf = refuse


def _without_links() -> None:
    """Refuse links and extended attributes, as FAT and some network disks do."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    os.link = os.symlink = os.setxattr = refuse


def _without_mapping() -> None:
    """Refuse to map files into memory, as some disks behind FUSE do."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    mmap.mmap = refuse  # type: ignore[misc,assignment]


def _without_flushes_of_folders() -> None:
    """Refuse to flush folders, as CIFS and FUSE may."""
    flush = os.fsync

    def refuse(stream: Any) -> None:
        if stat.S_ISDIR(os.fstat(stream).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(stream)

    os.fsync = refuse  # type: ignore[assignment]


def _without_a_name() -> None:
    """Be a user whom the system does not list, as with `docker run --user`."""

    def unlisted(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    pwd.getpwuid = unlisted
    for name in ("HOME", "USER", "LOGNAME", "USERNAME", "LNAME"):
        os.environ.pop(name, None)


def _in_ascii() -> None:
    """Print in ASCII, as in the locale C of old systems."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]


def _ignoring(*numbers: int) -> Callable[[], None]:
    """Return what ignores signals, as a parent may have done."""

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return ignore


def _blocking() -> None:
    """Block all signals, as a parent with threads may have done."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _limited(what: int, size: int) -> Callable[[], None]:
    """Return what limits a resource."""
    return lambda: resource.setrlimit(what, (size, size))


def _closed(*streams: int) -> Callable[[], None]:
    """Return what closes standard streams."""

    def close() -> None:
        for stream in streams:
            os.close(stream)

    return close


CONDITIONS = {
    "no HOME": _environment("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME"),
    "missing HOME": _environment(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent/c"),
    "read-only HOME": _environment(HOME="/proc", XDG_CACHE_HOME="/proc"),
    "missing TMPDIR": _environment(TMPDIR="/nonexistent"),
    "no PATH": _environment("PATH"),
    "no terminal's width": _environment(COLUMNS="0", LINES="0", TERM="dumb"),
    "user without a name": _inside(_without_a_name),
    "terminal in ASCII": _inside(_in_ascii),
    "one core": _inside(lambda: os.sched_setaffinity(0, {0})),
    "missing GPU": _environment(CUDA_VISIBLE_DEVICES="7"),
    "missing proxy": _environment(
        http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9"
    ),
    "no mapping of files": _inside(_without_mapping, refusable=True),
    "no flushing of folders": _inside(_without_flushes_of_folders),
    "narrow terminal": _environment(COLUMNS="1"),
    "OMP_NUM_THREADS=many": _environment(OMP_NUM_THREADS="many", MKL_NUM_THREADS="0"),
    "odd time zone": _environment(TZ="Mars/Olympus"),
    "in 1970": _inside(_clock(-1.79e9)),
    "in 2100": _inside(_clock(2.3e9)),
    "files of the future": Situation(_future),
    "HDF5 files locked": Situation(_locked, refusable=True),
    "no locks": _inside(_without_locks, refusable=True),
    "no links": _inside(_without_links),
    "SIGCHLD ignored": _inside(_ignoring(signal.SIGCHLD)),
    "SIGINT, SIGHUP and SIGPIPE ignored": _inside(
        _ignoring(signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
    ),
    "signals blocked": _inside(_blocking),
    "umask 077": _inside(lambda: os.umask(0o077)),
    "umask 777": _inside(lambda: os.umask(0o777), refusable=True),
    "stdin closed": _inside(_closed(0)),
    "96 open files": _inside(_limited(resource.RLIMIT_NOFILE, 96)),
    "stack of 256 kB": _inside(_limited(resource.RLIMIT_STACK, 2**18)),
    "no /dev/shm": _mounts("-t tmpfs -o size=4k,nr_inodes=2 tmpfs /dev/shm"),
    "read-only /dev/shm": _mounts("-t tmpfs -o ro tmpfs /dev/shm"),
    "no /tmp": _mounts("-t tmpfs -o ro tmpfs /tmp"),
}
