"""The C library's allocator for test processes, which live through thousands of small networks.

Left alone, glibc returns every large array to the system at once and maps fresh pages for the next,
which was most of the suite's system time, and keeps an arena for each thread that ever ran, which
let a process grow to 4 GB.

The pages of libraries are returned too. Of torch's, 300 MB are read once, when they are loaded: the
symbol tables and relocations of CUDA's libraries.
"""

import ctypes
import gc
import re
import resource
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
# Bytes. Larger arrays, the activations of whole networks, are mapped one by one: in the heap, what
# is freed between smaller ones stays resident, up to 400 MB in one test.
_MAPPED, _KEPT, _MUCH = 1 << 24, 1 << 26, 1 << 27
# Bytes of files. Tests of networks use about 100 MB of the libraries.
_MUCH_OF_FILES = 3 << 26
_DONT_NEED = 4  # of sys/mman.h
# A mapping of /proc/self/smaps that is private and not written to, of a file, and whose pages are
# all still those of the file: the tables that the loader has filled in are not.
_UNCHANGED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-.p \S+ \S+ [1-9]\d* .*\n(?:[A-Z].*\n)*?Anonymous: +0 kB", re.M
)


def keep_pages() -> None:
    """Have freed memory used again by this process; of another C library than glibc, nothing."""
    global _least
    _least, _ = _resident_bytes()
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_ARENA_MAX, 2)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED)
        library.mallopt(_TRIM_THRESHOLD, _KEPT)


def return_memory() -> None:
    """Return freed memory to the system if much more is resident than there was at the least."""
    global _least
    now, files = _resident_bytes()
    if files > _MUCH_OF_FILES:
        return_files()
    if now >= _least + _MUCH:
        _trim()
        now, _ = _resident_bytes()
    if now >= _least + _MUCH:
        # Networks are cycles of modules and hooks.
        gc.collect()
        _trim()
        _least, _ = _resident_bytes()
    _least = min(_least, now)


def _trim() -> None:
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def return_files() -> None:
    """Return the pages of libraries to the system, which maps them again when they are used."""
    try:
        mappings = Path("/proc/self/smaps").read_text()
    except OSError:
        return
    library = ctypes.CDLL(None)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in _UNCHANGED.findall(mappings):
        first = int(start, 16)
        library.madvise(first, int(end, 16) - first, _DONT_NEED)


def _resident_bytes() -> tuple[int, int]:
    """Return the resident bytes of this process that are not of files, and those that are."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0, 0
    total, files = int(pages[1]), int(pages[2])
    return (total - files) * resource.getpagesize(), files * resource.getpagesize()


_least = 0
