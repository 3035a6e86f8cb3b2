"""The C library's allocator for test processes, which live through thousands of small networks.

Left alone, glibc returns every large array to the system at once and maps fresh pages for the next,
which was most of the suite's system time, and keeps an arena for each thread that ever ran, which
let a process grow to 4 GB.
"""

import ctypes
import gc
import resource
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
# Bytes. Larger arrays, the activations of whole networks, are mapped one by one: in the heap, what
# is freed between smaller ones stays resident, up to 400 MB in one test.
_MAPPED, _KEPT, _MUCH = 1 << 24, 1 << 26, 1 << 25


def keep_pages() -> None:
    """Have freed memory used again by this process; of another C library than glibc, nothing."""
    global _least
    _least = _resident_bytes()
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_ARENA_MAX, 2)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)


def return_memory() -> None:
    """Return freed memory to the system if much more is resident than there was at the least."""
    global _least
    now = _resident_bytes()
    if now < _least + _MUCH:
        _least = min(_least, now)
        return
    # Networks are cycles of modules and hooks.
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    _least = _resident_bytes()


def _resident_bytes() -> int:
    """Return the resident bytes of this process that are not of files."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize()


_least = 0
