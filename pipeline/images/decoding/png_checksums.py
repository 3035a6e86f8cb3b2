"""The checksums of a PNG file's pixels, which Pillow does not verify.

PNG (third edition, section 5.3): a chunk is its length, its type, its data, and the CRC-32 of type
and data.
"""

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def pixels_are_damaged(data: bytes) -> bool:
    """Return whether a pixel chunk (`IDAT`) of a PNG file has a wrong checksum.

    Parameters
    ----------
    data : bytes. Contents of a file that Pillow has decoded; other formats have no such chunk.
    """
    view, place = memoryview(data), len(_SIGNATURE)
    while data.startswith(_SIGNATURE) and place + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", view, place)
        end = place + 8 + length
        if kind == b"IDAT" and zlib.crc32(view[place + 4 : end]).to_bytes(4) != view[end : end + 4]:
            return True
        place = end + 4
    return False
