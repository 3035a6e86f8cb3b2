"""Keeps freed memory in the worker process.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, so that freed arrays are returned to the
system at once. A network frees and allocates the same activations repeatedly, and each page would
be mapped and zeroed anew.
"""

import ctypes
from functools import cache

# Constants of glibc's malloc.h, and the value its dynamic thresholds reach on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 1 << 25


@cache
def keep_freed_memory() -> None:
    """Set glibc's thresholds to their values without Dask; do nothing on other libcs."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_BYTES)
