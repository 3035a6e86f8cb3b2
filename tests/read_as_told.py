"""A reader for tests in a module of its own: a process that tries files with it needs no pytest."""

import os
import signal
from pathlib import Path


def read_as_told(path: Path, told: str = "") -> str:
    """Do what the file, or the argument, tells."""
    match told or path.read_text():
        case "hang":
            while True:
                pass
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "grow":
            return "x" * (100 << 20)
        case "print":
            os.write(1, b"done\n")
        case "refuse":
            raise MemoryError
    return "read"
