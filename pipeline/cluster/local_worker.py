"""Loaded by each local worker as it starts: Ctrl-C is for the command, which ends its workers."""

import signal

from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Ignore the interrupt that a terminal sends to all processes of a command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
