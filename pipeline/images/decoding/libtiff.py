"""Error reports of libtiff, which only prints them, as exceptions.

The library's error handler is replaced in this process. Nothing else is affected, since Pillow has
its own copy of libtiff. Messages are collected per thread, since several threads decode.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from PIL import Image

_LONGEST = 300

_lines = threading.local()


@contextmanager
def libtiff_errors() -> Iterator[None]:
    """Raise the first error that libtiff reports within the block, as an OSError without errno.

    Pillow raises the same for damaged files. Pixels of such a file are wrong, even if Pillow
    returns some: group 4 and JPEG compression resume after an error.
    """
    errors: list[str] = []
    _lines.errors = errors
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if errors and getattr(error, "errno", None) is None:
            raise OSError(errors[0]) from error
        raise
    finally:
        _lines.errors = None
    if errors:
        raise OSError(errors[0])


# void handler(const char *module, const char *format, va_list arguments); ctypes passes the
# address of the last, which matches the calling conventions of Linux and macOS.
@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
def _record(module: bytes | None, template: bytes, arguments: int | None) -> None:
    errors = getattr(_lines, "errors", None)
    if errors is None:
        return
    text = ctypes.create_string_buffer(_LONGEST)
    _libc.vsnprintf(text, ctypes.c_size_t(_LONGEST), template, ctypes.c_void_p(arguments))
    errors.append("libtiff: " + text.value.decode("utf-8", "replace"))


_libc = ctypes.CDLL(None)
# Looked up in Pillow's module, this is the function of Pillow's own libtiff. If Pillow was built
# otherwise, libtiff keeps writing to stderr.
with suppress(AttributeError, OSError):
    ctypes.CDLL(Image.core.__file__).TIFFSetErrorHandler(_record)
