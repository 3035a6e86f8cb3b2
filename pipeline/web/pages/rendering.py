"""Rendering of untrusted data on pages: templates, text and images."""

import io
import re
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from PIL import Image

# Control characters, line and paragraph separators, marks that turn the direction of writing,
# half surrogate pairs, and the two numbers that XML excludes.
_SPELLED_OUT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def environment(package: str) -> Environment:
    """Return the Jinja environment of a package's templates.

    Every text is escaped and passed through `shown`; an undefined name is an error.

    Parameters
    ----------
    package : str. Package with a folder `templates`; templates of this package are available too.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("pipeline.web.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def shown(text: str) -> str:
    r"""Return `text` with control characters and direction overrides as `\x1b` or `\u202e`.

    Everything else is unchanged; templates and `html.escape` escape HTML and XML. Most control
    characters are invalid in HTML and XML even if escaped, and overrides such as U+202E reverse the
    displayed order of a line.
    """
    return _SPELLED_OUT.sub(lambda found: _escape(ord(found[0])), text)


def jpeg_of(image: Image.Image, quality: int) -> bytes:
    """Return an image as JPEG without the metadata of its file.

    Parameters
    ----------
    image : Image. Image of mode RGB; not modified.
    quality : int. JPEG quality of Pillow, 1-95.
    """
    bare = image.copy()
    bare.info = {}  # a comment in the source would be written to the copy
    stream = io.BytesIO()
    bare.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()


def _finalized(value: Any) -> Any:
    """Return the value of a template expression before escaping."""
    markup = hasattr(value, "__html__")  # output of a macro or a block, which is escaped already
    return shown(value) if isinstance(value, str) and not markup else value


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
