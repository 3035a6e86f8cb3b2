"""A module run in a process of its own: damaged files can hang or crash the libraries that read.

No exception ends an endless loop in C, nor a segmentation fault. So what is not known to be sound
is first read where that does no harm.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A time that any disk keeps to, so that only an endless loop is taken for one.
_BYTES_PER_SECOND = 5e6


def bad_end(module: str, arguments: Sequence[str], seconds: float, size: int) -> str | None:
    """Run `python -m module arguments`; return how it hung or crashed, None if it did not.

    A process that merely ends with an error did neither.

    Parameters
    ----------
    module, arguments : what to run.
    seconds : that it may take to start and end.
    size : bytes that it reads in between.
    """
    seconds += size / _BYTES_PER_SECOND
    root = str(Path(__file__).resolve().parents[2])
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"PYTHONPATH": root},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not come to an end within {seconds:.0f} s of opening it"
    return f"crashed on opening it (signal {-ended.returncode})" if ended.returncode < 0 else None
