"""One writer an output: a lock that ends with its process, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.shards.format import ShardError


@contextmanager
def only_writer(lock: Path, out: Path) -> Iterator[None]:
    """Hold the lock file `lock`, an empty file that stays, as the only writer of `out`.

    Raises
    ------
    ShardError
        Another process holds it.
    """
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ShardError(
                f"another process is writing {out}; wait until it has ended, or give another "
                "output folder"
            ) from error
        yield
    finally:
        os.close(descriptor)
