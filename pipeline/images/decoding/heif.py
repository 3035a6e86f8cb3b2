"""HEIC files, as phones write them: decoded with the extra `heif`, recognised without it."""

import importlib
from functools import cache

FORMAT = "HEIF"

EXTRA = "a HEIC image, which the extra `heif` decodes: pip install 'caption-feature-pipeline[heif]'"
"""Reason for a file that cannot be decoded without the extra."""

# Major brands of ISO/IEC 23008-12. `mif1` and `msf1` may also be AVIF, which Pillow tries first.
_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")


def is_heif(data: bytes) -> bool:
    """Return whether a file starts like a HEIC image."""
    return data[4:8] == b"ftyp" and data[8:12] in _BRANDS


@cache
def register_heif() -> bool:
    """Register HEIC with Pillow, and return whether the extra is installed."""
    try:
        library = importlib.import_module("pillow_heif")
    except ImportError:
        return False
    # One thread per image, since images are decoded on all cores at once.
    library.register_heif_opener(decode_threads=1, thumbnails=False)
    return True
