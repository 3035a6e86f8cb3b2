"""Rendering of untrusted data on pages: templates, text, images and labels."""

import io
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from PIL import Image

from pipeline import __version__
from pipeline.store.files import write_text
from pipeline.studies.embedding_map.plane import Point

MADE_BY = f"caption-feature-pipeline {__version__}, Jinja {version('jinja2')}"

# Control characters, line and paragraph separators, marks that turn the direction of writing,
# half surrogate pairs, and the two numbers that XML excludes: most are invalid in HTML and XML even
# if escaped, and overrides such as U+202E reverse the displayed order of a line.
_SPELLED_OUT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def environment(package: str) -> Environment:
    """Return the Jinja environment of a package's templates, in which every text is escaped."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("pipeline.web.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals["made_by"] = MADE_BY
    templates.filters["id_text"] = id_text
    return templates


def write_page(path: Path, package: str, **values: Any) -> None:
    """Write a page from the template of a package that has its name."""
    write_text(path, environment(package).get_template(path.name).render(**values))


def shown(text: str) -> str:
    r"""Return `text` with control characters and direction overrides as `\x1b` or `\u202e`."""
    return _SPELLED_OUT.sub(lambda match: _escape(ord(match[0])), text)


def id_text(text: str) -> Markup:
    """Return an id or a file name as HTML that breaks lines after `/`, `_` and `-` if possible."""
    return Markup(re.sub("([/_-])", r"\1<wbr>", str(escape(shown(text)))))


def jpeg_of(image: Image.Image, quality: int) -> bytes:
    """Return an RGB image as JPEG (quality 1-95) without the metadata of its file."""
    bare = image.copy()
    bare.info = {}  # a comment in the source would be written to the copy
    stream = io.BytesIO()
    bare.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()


def spread_labels(labels: Mapping[str, Point], letter: float, height: float) -> dict[str, Point]:
    """Return the points of labels, moved down until none overlap."""
    placed: dict[str, Point] = {}
    for word, (x, y) in sorted(labels.items(), key=lambda label: (label[1][1], label[0])):
        for other, (ox, oy) in sorted(placed.items(), key=lambda label: label[1][1]):
            width = letter * (len(word) + len(other)) / 2
            if abs(ox - x) < width and abs(oy - y) < height:
                y = oy + height
        placed[word] = (x, y)
    return placed


def _finalized(value: Any) -> Any:
    """Return the value of a template expression before escaping."""
    markup = hasattr(value, "__html__")  # output of a macro or a block, which is escaped already
    return shown(value) if isinstance(value, str) and not markup else value


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
