"""Preload module of local workers: they ignore Ctrl-C, which the command handles."""

import signal

from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Ignore the interrupt that a terminal sends to all processes of a command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
