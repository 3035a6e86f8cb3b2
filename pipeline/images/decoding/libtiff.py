"""What libtiff reports about a damaged file becomes an error; by itself it writes to stderr.

The library's handler of errors is replaced for the process. Nothing else is affected: Pillow has
its own copy of libtiff. Lines are kept per thread, as images are decoded on several.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from PIL import Image

_LONGEST = 300

_lines = threading.local()


class TiffError(Exception):
    """libtiff reports an error about the file that is being decoded."""


@contextmanager
def libtiff_errors() -> Iterator[None]:
    """Raise what libtiff reports in the block, also where the block has failed for that reason.

    Raises
    ------
    TiffError
        The first report. Pixels of such a file are not those that were stored, even where Pillow
        returns some: group 4 and JPEG compression resume after an error.
    """
    said: list[str] = []
    _lines.said = said
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if said and getattr(error, "errno", None) is None:
            raise TiffError(said[0]) from error
        raise
    finally:
        _lines.said = None
    if said:
        raise TiffError(said[0])


# void handler(const char *module, const char *format, va_list arguments); of the last, ctypes
# passes on the address, which is how the calling conventions of Linux and macOS have it.
@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
def _keep(module: bytes | None, template: bytes, arguments: int | None) -> None:
    said = getattr(_lines, "said", None)
    if said is None:
        return
    text = ctypes.create_string_buffer(_LONGEST)
    _libc.vsnprintf(text, ctypes.c_size_t(_LONGEST), template, ctypes.c_void_p(arguments))
    said.append("libtiff: " + text.value.decode("utf-8", "replace"))


_libc = ctypes.CDLL(None)
# Looked up through Pillow's module, it is the function of Pillow's own libtiff. Where Pillow was
# built otherwise, libtiff keeps writing to stderr.
with suppress(AttributeError, OSError):
    ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler(_keep)
