"""Boxes drawn over images, as self-contained SVG."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from pipeline.images.decoding.decode import read_image
from pipeline.store.files import require_folder, write_text
from pipeline.web.pages.rendering import jpeg_of, shown

if TYPE_CHECKING:
    from pipeline.regions.localization.region_searcher import RegionHit

_COLOURS = {"true": "#00a37a", "found": "#e8590c"}
_WIDTH = 0.012  # of a line, as a share of the longer side
_SIDE, _QUALITY = 480, 82


@dataclass(frozen=True)
class Mark:
    """A box over an image."""

    box: tuple[float, float, float, float]  # x0 y0 x1 y1 in pixels of the image
    label: str = ""  # short text at a corner; escaped
    kind: str = "found"  # "found", a solid line, or "true", a dashed line
    colour: str = ""  # CSS colour; "": that of the kind


def marked_photo(
    jpeg: bytes, size: tuple[int, int], marks: Sequence[Mark], description: str
) -> str:
    """Return a JPEG, b"" for none, with boxes in units of `size`, as one SVG element."""
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


def write_marked(folder: str | Path, phrase: str, hits: Sequence["RegionHit"]) -> list[Path]:
    """Write an SVG for each hit, `01.svg` the first, and return the files."""
    folder = Path(folder)
    require_folder(folder)
    files = []
    for hit in hits:
        jpeg = small_jpeg(hit.file, _SIDE, _QUALITY)
        files.append(folder / f"{hit.rank:02d}.svg")
        described = f"{phrase} in {hit.id}"
        write_text(files[-1], marked_photo(jpeg, hit.size, [Mark(hit.box, phrase)], described))
    return files


def small_jpeg(file: Path | None, side: int, quality: int) -> bytes:
    """Return an image as JPEG, at most `side` wide and high; b"" if it cannot be decoded."""
    decoded = None if file is None else read_image(file).image
    if decoded is None:
        return b""
    decoded.thumbnail((side, side), Image.Resampling.BICUBIC)
    return jpeg_of(decoded, quality)


def boxes_over(size: tuple[int, int], marks: Sequence[Mark]) -> str:
    """Return the boxes as elements of an SVG whose view box is the image."""
    line = _WIDTH * max(size)
    return "".join(_drawn(mark, line) for mark in marks)


def _drawn(mark: Mark, line: float) -> str:
    """Return a box with a white edge, visible on any background, and its label."""
    x0, y0, x1, y1 = mark.box
    attributes = f'x="{x0:g}" y="{y0:g}" width="{x1 - x0:g}" height="{y1 - y0:g}" fill="none"'
    colour = mark.colour or _COLOURS[mark.kind]
    dashed = f' stroke-dasharray="{3 * line:g} {2 * line:g}"' if mark.kind == "true" else ""
    drawn = (
        f'<rect {attributes} stroke="#fff" stroke-width="{1.8 * line:g}"/>'
        f'<rect {attributes} stroke="{colour}" stroke-width="{line:g}"{dashed}/>'
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
