"""Pages of libraries are returned to the system, and only those that it can map again."""

import ctypes
import mmap
import sys
from pathlib import Path

import pytest
import torch

from tests.allocator import return_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc of Linux")


def megabytes_of_files() -> float:
    return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE / 1e6


def test_libraries_are_returned_and_work_as_before() -> None:
    values = torch.linspace(-1, 1, 900).view(1, 1, 30, 30)
    found = torch.conv2d(values, values[..., :3, :3]).softmax(-1)
    return_files()
    assert megabytes_of_files() < 100
    assert torch.equal(torch.conv2d(values, values[..., :3, :3]).softmax(-1), found)


def test_a_page_that_was_changed_is_kept(tmp_path: Path) -> None:
    """As the loader does with tables of a library: it fills them in, then protects them."""
    path = tmp_path / "table"
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    with path.open("r+b") as stream:
        table = mmap.mmap(stream.fileno(), 0, flags=mmap.MAP_PRIVATE)
    table[:4] = b"full"
    start = ctypes.c_char.from_buffer(table)
    library = ctypes.CDLL(None)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert library.mprotect(ctypes.addressof(start), len(table), mmap.PROT_READ) == 0
    return_files()
    assert table[:4] == b"full"
    del start
    table.close()
    assert path.read_bytes()[:4] == bytes(4)
