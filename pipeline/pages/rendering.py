"""Untrusted data on pages: templates, text and images."""

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
    """Return the environment of a package's templates.

    Every text is escaped and goes through `shown`; a missing name is an error.

    Parameters
    ----------
    package : str. With a folder `templates`; those of this package are found, too.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("pipeline.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def shown(text: str) -> str:
    r"""Return `text` with control characters and reversals of direction spelled out.

    They become `\x1b` or `\u202e`; all else stays as it is. Escaping for HTML and XML is the
    templates' and `html.escape`'s; this is for what no escaping can express (most control
    characters do not exist in HTML or XML) and for what would reverse the order in which a line is
    read.
    """
    return _SPELLED_OUT.sub(lambda found: _escape(ord(found[0])), text)


def jpeg_of(image: Image.Image, quality: int) -> bytes:
    """Return an image as JPEG without the metadata of its file.

    Parameters
    ----------
    image : Image. Mode RGB; stays as it is.
    quality : int. Of Pillow's JPEG, 1-95.
    """
    bare = image.copy()
    bare.info = {}  # a comment in the source would be written to the copy
    stream = io.BytesIO()
    bare.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()


def _finalized(value: Any) -> Any:
    """Return the value of an expression of a template, before it is escaped."""
    markup = hasattr(value, "__html__")  # output of a macro or a block, which is escaped already
    return shown(value) if isinstance(value, str) and not markup else value


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
