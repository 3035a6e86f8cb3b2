"""Damaged files that hang or crash the libraries that read them are first read in a fork.

No exception ends an endless loop in C, nor a segmentation fault. So a file that is not known to be
sound is first read where that does no harm.
"""

import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from h5py._objects import phil

from pipeline.shards.format import DamagedShard
from pipeline.shards.shard_file import ShardFile

SECONDS = 10.0
"""Of the processor: what reading the structure of a file takes at most."""

# Any processor is faster, so that only an endless loop is taken for one.
_BYTES_PER_SECOND = 5e6
# Of the clock, for each second of the processor: a library that waits for ever ends too.
_CLOCK = 60
_ENDLESS = (signal.SIGPROF, signal.SIGALRM)
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)


def require_unbroken(paths: Sequence[Path], features: bool) -> None:
    """Check that files can be opened in this process.

    Parameters
    ----------
    paths, features : see `find_crashing_files`.

    Raises
    ------
    DamagedShard
        One hangs or crashes HDF5.
    """
    if broken := find_crashing_files(paths, features):
        path, text = next(iter(broken.items()))
        raise DamagedShard(f"{path} is {text}; copy it again, or have it made again")


def find_crashing_files(paths: Sequence[Path], features: bool) -> dict[Path, str]:
    """Return the files that hang or crash HDF5, and what each of them does.

    Files that are merely refused, like any other damaged file, are not among them.

    Parameters
    ----------
    paths : HDF5 files that are there.
    features : read all features too, not just the rest.
    """
    if not paths:
        return {}
    size = sum(path.stat().st_size for path in paths) if features else 0
    fault = fault_of(lambda: _read_all(paths, features), size)
    if fault is None:
        return {}
    if len(paths) == 1:
        return {paths[0]: f"damaged: HDF5 {fault}"}
    found: dict[Path, str] = {}
    for path in paths:
        found |= find_crashing_files([path], features)
    return found


def fault_of(read: Callable[[], object], size: int) -> str | None:
    """Call a function in a fork of this process; return how it hung or crashed, None if not.

    Where the system gives no further process nothing is looked at.

    What it returns or raises is lost: whoever calls it again without a fault sees that.

    Parameters
    ----------
    read : reads files, and does nothing that lasts.
    size : bytes that it reads beside the structure of a file.
    """
    seconds = SECONDS + size / _BYTES_PER_SECOND
    try:
        with phil:  # no other thread is within HDF5, which could not go on in the fork
            child = os.fork()
    except OSError:  # too little memory, or too many processes: most files are sound
        return None
    if not child:
        try:
            _limit(seconds)
            read()
        finally:
            os._exit(0)
    try:
        status = os.waitpid(child, 0)[1]
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return _fault(-os.waitstatus_to_exitcode(status), seconds)


def _limit(seconds: float) -> None:
    """Let an endless loop, a long wait, a crash or a signal end this process, in silence."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *_ENDLESS, *_CRASHES):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, _CLOCK * seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _fault(number: int, seconds: float) -> str | None:
    if number <= 0:
        return None
    if number in _ENDLESS:
        return f"did not come to an end within {seconds:.0f} s of opening it"
    if number in _CRASHES:
        return f"crashed on opening it (signal {number})"
    return f"was killed when it had opened it (signal {number}), as where memory is short"


def _read_all(paths: Sequence[Path], features: bool) -> None:
    for path in paths:
        with suppress(DamagedShard):
            shard = ShardFile(path)
            for rows in shard.spans() if features else ():
                with suppress(DamagedShard):
                    shard.stored(rows)
