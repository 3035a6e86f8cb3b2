"""Charts as SVG text: narrow enough for a phone, light or dark, always the same bytes.

Written here and not by a plotting library, because what a page of figures needs is short: a few
kinds of chart, real text at one size, and colours that follow the reader's scheme, which a library
that writes fixed colours cannot give.
"""

from collections.abc import Iterable, Sequence
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
_LEFT, _RIGHT, _PLOT_HEIGHT = 46, 12, 200
_LABEL = 21  # of a row, from its top: below it gridlines may start
_DASHES = ("", "6 3", "2 3", "8 3 2 3")

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


@dataclass(frozen=True)
class Bar:
    """A value with its interval, if it has one; `low <= value <= high`."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points (x, y) in the order of x, joined by a line.

    `marked` is the x of a point to point out, such as the epoch that was chosen.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    marked: float | None = None


@dataclass(frozen=True)
class Spans:
    """Two spans on one scale, each from its filled end.

    Where there is nothing `before`, it says why in a few words.
    """

    label: str
    before: tuple[float, float] | str
    after: tuple[float, float]


def dot_chart(bars: Sequence[Bar], axis: str, alt: str) -> str:
    """Draw values as dots on a scale from 0, a row each, under its label.

    Parameters
    ----------
    bars : from top to bottom, at least one, no value below 0.
    axis : what the scale is of.
    alt : the chart in words, for those who cannot see it.
    """
    ticks = nice_ticks(0.0, max(bar.value if bar.high is None else bar.high for bar in bars))
    scale = Scale(ticks[0], ticks[-1], 14, WIDTH - 58)
    step = 40
    parts: list[str] = []
    for number, bar in enumerate(bars):
        y = step * number
        at = y + 28
        parts += _row(bar.label, y, y + step, [scale(t) for t in ticks])
        if bar.low is not None and bar.high is not None:
            parts.append(line("line c0", scale(bar.low), at, scale(bar.high), at))
        parts.append(marker(0, scale(bar.value), at))
        parts.append(text(WIDTH - 8, at + 4, f"{bar.value:.1f}", anchor="end"))
    bottom = step * len(bars)
    parts += _axis_below(bottom, axis, ticks, scale)
    return document(bottom + 44, alt, parts)


def span_chart(
    rows: Sequence[Spans], names: tuple[str, str], ends: tuple[str, str], axis: str, alt: str
) -> str:
    """Draw two spans under each label: grey and, below it, coloured; filled and hollow ends.

    Parameters
    ----------
    rows : from top to bottom, at least one, no value below 0.
    names, ends : for the legend, what the grey and the coloured spans are, and what their filled
        and their hollow ends.
    axis : what the scale is of.
    alt : the chart in words, for those who cannot see it.
    """
    spans = [s for row in rows for s in (row.after, row.before) if not isinstance(s, str)]
    ticks = nice_ticks(0.0, max(value for span in spans for value in span))
    scale = Scale(ticks[0], ticks[-1], 14, WIDTH - 14)
    step = 58
    parts: list[str] = []
    for number, row in enumerate(rows):
        y = step * number
        none = f"no grey line: {row.before}" if isinstance(row.before, str) else ""
        parts += _row(row.label, y, y + step, [scale(t) for t in ticks], none)
        if not isinstance(row.before, str):
            parts += _span("cs", "soft", scale(row.before[0]), scale(row.before[1]), y + 30)
        parts += _span("c0", "f0", scale(row.after[0]), scale(row.after[1]), y + 43)
    bottom = step * len(rows)
    parts += _axis_below(bottom, axis, ticks, scale)
    y = bottom + 42 + LINE
    for (stroke, fill), name in zip((("cs", "soft"), ("c0", "f0")), names, strict=True):
        parts += [*_span(stroke, fill, 12, 40, y - 4), text(50, y, name)]
        y += LINE
    for end, drawn, x in zip(ends, _span("cs", "soft", 12, 216, y - 4)[1:], (22, 226), strict=True):
        parts += [drawn, text(x, y, end)]
    return document(y + 12, alt, parts)


def line_chart(
    series: Sequence[Series], others: Sequence[Series], x_axis: str, y_axis: str, alt: str
) -> str:
    """Draw lines over one pair of axes; y starts at 0, or near the least value of several lines.

    The latter if that is above half of the greatest: from 0 such lines would lie on each other.
    The name of the axis says so.

    Parameters
    ----------
    series : at most `COLOURS` of them, told apart by colour, dash and marker.
    others : drawn thin and grey behind them, with one line of the legend for all.
    x_axis, y_axis : what the scales are of.
    alt : the chart in words, for those who cannot see it.
    """
    points = [point for drawn in (*series, *others) for point in drawn.points]
    least, greatest = min(y for _, y in points), max(y for _, y in points)
    close = len(series) + len(others) > 1 and least > greatest / 2
    y_ticks = nice_ticks(least if close else 0.0, greatest)
    x_ticks = nice_ticks(min(x for x, _ in points), max(x for x, _ in points), whole=True)
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    x_ticks = [t for t in x_ticks if low <= t <= high] or [low]
    top = 26
    bottom = top + _PLOT_HEIGHT
    across = Scale(low, high, _LEFT + 6, WIDTH - _RIGHT - 6)
    up = Scale(y_ticks[0], y_ticks[-1], bottom, top)
    starts = f"; the scale starts at {numeral(y_ticks[0])}" if y_ticks[0] else ""
    parts = [text(8, 14, y_axis + starts, "soft")]
    for tick in y_ticks:
        parts.append(line("rule", _LEFT, up(tick), WIDTH - _RIGHT, up(tick)))
        parts.append(text(_LEFT - 6, up(tick) + 4, numeral(tick), "soft", "end"))
    for tick in x_ticks:
        parts.append(line("rule", across(tick), bottom, across(tick), bottom + 4))
        parts.append(text(across(tick), bottom + 18, numeral(tick), "soft", "middle"))
    parts.append(text(WIDTH - _RIGHT, bottom + 36, x_axis, "soft", "end"))
    parts += [path("other", drawn.points, across, up) for drawn in others]
    for number, drawn in enumerate(series):
        parts.append(path(f"line c{number}", drawn.points, across, up, _DASHES[number]))
        parts += [marker(number, across(x), up(y)) for x, y in drawn.points if x != drawn.marked]
    for number, drawn in enumerate(series):  # over all lines
        marked = [point for point in drawn.points if point[0] == drawn.marked]
        parts += [marker(number, across(x), up(y), large=True) for x, y in marked]
    y = bottom + 46
    for number, drawn in enumerate(series if len(series) > 1 or others else ()):
        y += LINE
        parts.append(line(f"line c{number}", 8, y - 4, 36, y - 4, _DASHES[number]))
        parts.append(marker(number, 22, y - 4))
        parts.append(text(44, y, drawn.label))
    if others:
        y += LINE
        parts.append(line("other", 8, y - 4, 36, y - 4))
        parts.append(text(44, y, f"{len(others)} other{'s' if len(others) > 1 else ''}"))
    return document(y + 12, alt, parts)


def _row(
    label: str, top: float, bottom: float, gridlines: Sequence[float], note: str = ""
) -> list[str]:
    """Return a row: a label, a note, gridlines that run through no text, and a line below."""
    free = top + _LABEL + (LINE - 3 if note else 0)
    parts = [line("rule", x, free, x, bottom) for x in gridlines]
    parts += [line("rule", 8, bottom, WIDTH - 8, bottom), text(8, top + 15, label)]
    return [*parts, text(8, top + 32, note, "soft")] if note else parts


def _axis_below(bottom: float, axis: str, ticks: Sequence[float], scale: Scale) -> list[str]:
    numerals = [text(scale(t), bottom + 16, numeral(t), "soft", "middle") for t in ticks]
    return [*numerals, text(8, bottom + 34, axis, "soft")]


def _span(stroke: str, fill: str, start: float, end: float, y: float) -> list[str]:
    """Return a line, its filled end and its hollow one."""
    return [
        line(f"line {stroke}", start, y, end, y),
        f'<circle class="{fill}" cx="{start:.1f}" cy="{y:g}" r="4"/>',
        f'<circle class="line hollow {stroke}" cx="{end:.1f}" cy="{y:g}" r="3.5"/>',
    ]


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


def document(height: float, alt: str, parts: Iterable[str]) -> str:
    """Return a whole SVG file of `WIDTH` and a height, with its alternative text."""
    title = escape(shown(alt))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(parts)
    ) + "\n</svg>\n"


def text(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    """Return text at its baseline, cut off where a chart would be too narrow for it."""
    fitting = shown(label)
    if len(fitting) > _LABEL_LENGTH:
        fitting = fitting[: _LABEL_LENGTH - 1] + "…"
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(fitting)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    """Return a straight line of a class of the style."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}{dashes}/>'


def path(
    kind: str, points: Iterable[tuple[float, float]], across: Scale, up: Scale, dash: str = ""
) -> str:
    """Return a line through points, which are values of two scales."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}"{dashes}/>'


def marker(number: int, x: float, y: float, large: bool = False) -> str:
    """Return a circle, square, triangle or diamond; large ones have an edge to part them."""
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
    """Return the text of a tick."""
    return f"{value:g}"
