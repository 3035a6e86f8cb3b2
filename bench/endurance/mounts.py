"""Mounts that one process alone sees, and that end with it."""

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

_NEW_MOUNTS = 0x20000  # CLONE_NEWNS of sched.h


def mounted(folder: Path, mounts: Sequence[str]) -> Callable[[], None]:
    """Return what mounts within the calling process; arguments of `mount`, relative to a folder.

    Without the right to mount, the process ends with status 1 and the reason.
    """

    def mount() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
            raise SystemExit(f"pipeline: error: no mounts: {os.strerror(ctypes.get_errno())}")
        for arguments in ("--make-rprivate /", *mounts):
            subprocess.run(["mount", *arguments.split()], cwd=folder, check=True)
        os.chdir(folder)  # the folder below the mount
        tempfile.tempdir = None  # which the parent has found

    return mount
