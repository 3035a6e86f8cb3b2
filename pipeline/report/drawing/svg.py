"""The marks of charts as SVG text: narrow enough for a phone, light or dark, always the same bytes.

Written here and not by a plotting library, because what a page of figures needs is short: a few
kinds of chart, real text at one size, and colours that follow the reader's scheme, which a library
that writes fixed colours cannot give.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from pipeline.pages.rendering import shown

WIDTH = 380
"""Of every chart, in CSS pixels at its natural size, where text is 12 pixels high."""

COLOURS = 4
"""Series that a colour, a dash and a marker tell apart."""

LINE = 18
"""From a line of text to the next, in pixels."""

_LABEL_LENGTH = 52

_STYLE = """
svg{color-scheme:light dark;--page:#fff;--ink:#1c2024;--soft:#596069;--rule:#dfe3e8;
--c0:#0b62a4;--c1:#b84c00;--c2:#00785a;--c3:#97407a;--other:#c3c9d0}
@media (prefers-color-scheme:dark){svg{--page:#16191d;--ink:#e8eaed;--soft:#a3abb5;--rule:#343a42;
--c0:#62b5f0;--c1:#f0a04b;--c2:#3fcf9f;--c3:#e79bcb;--other:#525a64}}
.page{fill:var(--page)}text{fill:var(--ink);font:12px system-ui,sans-serif}
.soft{fill:var(--soft)}.kept{stroke:var(--page);stroke-width:1.5}.rule{stroke:var(--rule)}.line{fill:none;stroke-width:2}
.other{stroke:var(--other);stroke-width:1;fill:none}
.cs{stroke:var(--soft)}.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.hollow{fill:var(--page)}.letter{font-weight:700}.frame{fill:none;stroke:var(--soft)}
.word{font-weight:700;font-size:14px;paint-order:stroke;stroke:var(--page);stroke-width:5px;stroke-linejoin:round}
"""


def nice_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Return about five even steps of 1, 2 or 5 times a power of ten that cover low to high.

    `whole` asks for steps of at least 1. Of one value there are two ticks about it.
    """
    if not (isfinite(low) and isfinite(high)) or high < low:
        raise ValueError(f"no scale goes from {low} to {high}")
    span = (high - low) or max(abs(high), 1.0)
    power = 10.0 ** floor(log10(span / 5))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span / 5 * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first, last = floor(low / step + 1e-9), ceil((low + span) / step - 1e-9)
    # Steps below 1 are rounded: 3 * 0.1 would be written as 0.30000000000000004.
    return [round(k * step, 12) for k in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` laid out from `start` to `end` pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def document(height: float, alt: str, parts: Iterable[str]) -> str:
    """A whole SVG file of `WIDTH` and a height, with its alternative text."""
    title = escape(shown(alt))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(parts)
    ) + "\n</svg>\n"


def text(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    """Text at its baseline, cut off where a chart would be too narrow for it."""
    fitting = shown(label)
    if len(fitting) > _LABEL_LENGTH:
        fitting = fitting[: _LABEL_LENGTH - 1] + "…"
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(fitting)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    """A straight line of a class of the style."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}{dashes}/>'


def path(
    kind: str, points: Iterable[tuple[float, float]], across: Scale, up: Scale, dash: str = ""
) -> str:
    """A line through points, which are values of two scales."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}"{dashes}/>'


def marker(number: int, x: float, y: float, large: bool = False) -> str:
    """A circle, a square, a triangle or a diamond; large ones have an edge to part them."""
    r = 6 if large else 3.5
    kind = f"f{number} kept" if large else f"f{number}"
    if number == 0:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r * 1.2), (r * 1.2, r), (-r * 1.2, r)),
        3: ((0, -r * 1.3), (r * 1.3, 0), (0, r * 1.3), (-r * 1.3, 0)),
    }[number]
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{kind}" points="{places}"/>'


def numeral(value: float) -> str:
    """A tick as it is written."""
    return f"{value:g}"
