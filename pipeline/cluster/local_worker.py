"""Preload of local workers: only the command handles Ctrl-C, and stops its workers."""

import signal

from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Ignore the interrupt that a terminal sends to all processes of a command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
