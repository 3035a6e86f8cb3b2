"""The memory that a worker frees stays with it.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, so that freed arrays go back to the system
at once. A network frees and asks for the same activations all the time, and every page of them
then has to be had, and zeroed, anew.
"""

import ctypes
from functools import cache

# Of glibc's malloc.h, and what its own thresholds grow to by themselves on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 1 << 25


@cache
def keep_freed_memory() -> None:
    """Set glibc's thresholds to what they would be without Dask; elsewhere do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MMAP_BYTES)
