"""Boxes drawn over an image, as self-contained SVG."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipeline.web.pages.rendering import shown

_COLOURS = {"true": "#00a37a", "found": "#e8590c"}
_WIDTH = 0.012  # of a line, as a share of the longer side


@dataclass(frozen=True)
class Mark:
    """A box over an image.

    Attributes
    ----------
    box : tuple of 4 float. x0 y0 x1 y1 in pixels of the image.
    label : str. Short text at a corner; escaped.
    kind : str. "found", a solid line, or "true", a dashed line.
    colour : str. CSS colour; "": that of the kind.
    """

    box: tuple[float, float, float, float]
    label: str = ""
    kind: str = "found"
    colour: str = ""


def marked_photo(
    jpeg: bytes, size: tuple[int, int], marks: Sequence[Mark], description: str
) -> str:
    """Return an image with boxes as one SVG element, with the image embedded.

    Parameters
    ----------
    jpeg : bytes. The image as JPEG, of any resolution; b"" draws the boxes alone.
    size : tuple of 2 int. Width and height of the image in the units of the boxes.
    marks : sequence of Mark. Boxes; later ones are drawn on top.
    description : str. Text alternative.
    """
    width, height = size
    photo = ""
    if jpeg:
        data = base64.b64encode(jpeg).decode("ascii")
        photo = (
            f'<image href="data:image/jpeg;base64,{data}" width="{width}" height="{height}" '
            'preserveAspectRatio="none"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(shown(description))}">{photo}{boxes_over(size, marks)}</svg>'
    )


def boxes_over(size: tuple[int, int], marks: Sequence[Mark]) -> str:
    """Return the boxes as elements of an SVG whose view box is the image."""
    line = _WIDTH * max(size)
    return "".join(_drawn(mark, line) for mark in marks)


def _drawn(mark: Mark, line: float) -> str:
    """Return a box with a white edge, visible on any background, and its label."""
    x0, y0, x1, y1 = mark.box
    place = f'x="{x0:g}" y="{y0:g}" width="{x1 - x0:g}" height="{y1 - y0:g}" fill="none"'
    colour = mark.colour or _COLOURS[mark.kind]
    dashed = f' stroke-dasharray="{3 * line:g} {2 * line:g}"' if mark.kind == "true" else ""
    drawn = (
        f'<rect {place} stroke="#fff" stroke-width="{1.8 * line:g}"/>'
        f'<rect {place} stroke="{colour}" stroke-width="{line:g}"{dashed}/>'
    )
    if mark.label:
        size = 5 * line
        text = escape(shown(mark.label))
        drawn += (
            f'<text x="{x0 + line:g}" y="{y0 + size:g}" font-size="{size:g}" fill="{colour}" '
            'font-family="sans-serif" font-weight="bold" stroke="#fff" '
            f'stroke-width="{0.5 * line:g}" paint-order="stroke">{text}</text>'
        )
    return drawn
