"""Dask workers forked from one process that has imported torch, in place of fresh interpreters.

A fresh worker takes three CPU seconds to import it. Tests of command lines in processes of their
own start fresh workers all the same.
"""

from multiprocessing import forkserver

import dask

# What the workers of all families of features import.
_MODULES = ["distributed", "torch", "torchvision", "h5py", "pipeline.images.image_source"]


def warm_workers(now: bool) -> None:
    """Have the workers that this process starts forked from a server, which starts with the first.

    `now` starts it before any test has changed folder, paths or environment. Dask would have the
    server import a list of its own.
    """
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    forkserver.set_forkserver_preload(_MODULES)
    forkserver.set_forkserver_preload = lambda modules: None  # type: ignore[assignment]
    if now:
        forkserver.ensure_running()
