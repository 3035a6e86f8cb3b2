"""The C library's allocator for test processes, which live through thousands of small networks.

Left alone, glibc returns every large array to the system at once and maps fresh pages for the next,
which was most of the suite's system time, and keeps an arena for each thread that ever ran, which
let a process grow to 4 GB.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
_KEPT = 1 << 28  # bytes


def keep_pages() -> None:
    """Have freed memory used again by this process; of another C library than glibc, nothing."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_ARENA_MAX, 2)
        library.mallopt(_MMAP_THRESHOLD, _KEPT)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)


def return_pages() -> None:
    """Return freed memory to the system."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
