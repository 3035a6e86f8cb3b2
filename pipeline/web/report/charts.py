"""Charts as SVG text: for narrow screens, light and dark colour schemes, deterministic.

No plotting library is used, since these write fixed colours. A system has one number in a report,
which selects its colour, marker and dash; from number `COLOURS` on it is grey.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from pipeline.web.pages.rendering import shown, spread_labels

WIDTH = 380  # natural width of every chart in CSS pixels; text is 12 pixels high
COLOURS = 8  # number of systems with their own colour, marker and dash
LINE = 18  # line height of text in pixels
_LABEL_LENGTH = 52
_LEFT, _RIGHT, _PLOT_HEIGHT = 46, 12, 200
_LABEL = 21  # height of a row's label: gridlines start below it
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_UNFILLED_DASH = "4 3"
_CORNERS: tuple[tuple[tuple[float, float], ...], ...] = (
    (),  # a circle
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((0, -1.2), (1.2, 1), (-1.2, 1)),
    ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    ((-1.2, -1), (1.2, -1), (0, 1.2)),
    ((-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)),
    ((-0.5, -1.3), (0.5, -1.3), (0.5, 1.3), (-0.5, 1.3)),
    ((0, -1.4), (0.4, -0.4), (1.4, 0), (0.4, 0.4), (0, 1.4), (-0.4, 0.4), (-1.4, 0), (-0.4, -0.4)),
)
"""Corners of the marker of each system, in units of its radius."""

_STYLE = """
svg{color-scheme:light dark;--page:#fff;--ink:#1c2024;--soft:#596069;--rule:#dfe3e8;
--c0:#0b62a4;--c1:#b84c00;--c2:#00785a;--c3:#97407a;--c4:#7a5c00;--c5:#5a4fcf;--c6:#c2243b;--c7:#2b6f82;--other:#8b939c}
@media (prefers-color-scheme:dark){svg{--page:#16191d;--ink:#e8eaed;--soft:#a3abb5;--rule:#343a42;
--c0:#62b5f0;--c1:#f0a04b;--c2:#3fcf9f;--c3:#e79bcb;--c4:#d6c04a;--c5:#ab9dff;--c6:#ff8a8a;--c7:#8cc4d4;--other:#767f89}}
.page{fill:var(--page)}text{fill:var(--ink);font:12px system-ui,sans-serif}
.soft{fill:var(--soft)}.kept{stroke:var(--page);stroke-width:1.5}.rule{stroke:var(--rule)}.line{fill:none;stroke-width:2}
.other{stroke:var(--other);stroke-width:1;fill:none}
.cs{stroke:var(--soft)}.ci{stroke:var(--ink)}.fi{fill:var(--ink)}COLOURS
.unfilled{fill:var(--page);stroke-width:2}.letter{font-weight:700}.frame{fill:none;stroke:var(--soft)}
.word{font-weight:700;font-size:14px;paint-order:stroke;stroke:var(--page);stroke-width:5px;stroke-linejoin:round}
.count{font-size:10px;paint-order:stroke;stroke:var(--page);stroke-width:3px}
""".replace(
    "COLOURS",
    "".join(f".c{k}{{stroke:var(--c{k})}}.f{k}{{fill:var(--c{k})}}" for k in range(COLOURS)),
)


@dataclass(frozen=True)
class Scale:
    """Linear map from values `low` to `high` to pixels `start` to `end`."""

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
    """A value with an optional interval, `low <= value <= high`."""

    label: str
    value: float
    low: float | None = None  # bounds of the interval
    high: float | None = None
    number: int = 0  # number of the system in the report


@dataclass(frozen=True)
class Series:
    """A line through points."""

    label: str
    points: tuple[tuple[float, float], ...]  # points (x, y) in ascending x
    marked: float | None = None  # x of an emphasised point, such as the selected epoch
    number: int = 0  # number of the system in the report
    unfilled: bool = False
    """Draw it dashed with unfilled markers, as a second series of the same system."""

    @property
    def dash(self) -> str:
        """Dash pattern of the line."""
        return _UNFILLED_DASH if self.unfilled else _DASHES[self.number % len(_DASHES)]


@dataclass(frozen=True)
class Spans:
    """Two spans on one scale, each starting at its filled end."""

    label: str
    before: tuple[float, float] | str
    """(float, float) or str. Grey span, or the reason for its absence."""
    after: tuple[float, float]  # the coloured span
    number: int = 0  # number of the system in the report


def dot_chart(bars: Sequence[Bar], axis: str, alt: str, most: float | None = None) -> str:
    """Draw one labelled dot per value on a scale from 0 to at most `most`."""
    greatest = max(bar.value if bar.high is None else bar.high for bar in bars)
    ticks = nice_ticks(0.0, greatest, most=most)
    scale = Scale(ticks[0], ticks[-1], 14, WIDTH - 58)
    step = 40
    parts: list[str] = []
    for number, bar in enumerate(bars):
        y = step * number
        at = y + 28
        parts += _row(bar.label, y, y + step, [scale(t) for t in ticks])
        if bar.low is not None and bar.high is not None:
            stroke, _ = _classes(bar.number)
            parts.append(line(f"line {stroke}", scale(bar.low), at, scale(bar.high), at))
        parts.append(marker(bar.number, scale(bar.value), at))
        parts.append(text(WIDTH - 8, at + 4, f"{bar.value:.1f}", anchor="end"))
    bottom = step * len(bars)
    parts += _axis_below(bottom, axis, ticks, scale)
    return document(bottom + 44, alt, parts)


def span_chart(
    rows: Sequence[Spans], names: tuple[str, str], ends: tuple[str, str], axis: str, alt: str
) -> str:
    """Draw two spans under each label, the grey one above the coloured one; no value is below 0."""
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
        parts += _span(*_classes(row.number), scale(row.after[0]), scale(row.after[1]), y + 43)
    bottom = step * len(rows)
    parts += _axis_below(bottom, axis, ticks, scale)
    y = bottom + 42 + LINE
    for (stroke, fill), name in zip((("cs", "soft"), _classes(rows[0].number)), names, strict=True):
        parts += [*_span(stroke, fill, 12, 40, y - 4), text(50, y, name)]
        y += LINE
    for end, drawn, x in zip(ends, _span("cs", "soft", 12, 216, y - 4)[1:], (22, 226), strict=True):
        parts += [drawn, text(x, y, end)]
    return document(y + 12, alt, parts)


def line_chart(
    series: Sequence[Series], x_axis: str, y_axis: str, alt: str, most: float | None = None
) -> str:
    """Draw lines over one pair of axes; `most` is the maximum possible y."""
    named = [drawn for drawn in series if drawn.number < COLOURS]
    others = [drawn for drawn in series if drawn.number >= COLOURS]
    points = [point for drawn in series for point in drawn.points]
    least, greatest = min(y for _, y in points), max(y for _, y in points)
    # Lines that would overlap on a scale from 0 start near their minimum; the axis states it.
    close = len(series) > 1 and greatest / 2 < least < greatest
    y_ticks = nice_ticks(least if close else 0.0, greatest, most=most)
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    x_ticks = [t for t in nice_ticks(low, high, whole=True) if low <= t <= high]
    if not x_ticks:  # all within one whole step
        low, high = float(floor(low)), float(ceil(high))
        x_ticks = [low, high]
    top = 26
    bottom = top + _PLOT_HEIGHT
    across = Scale(low, high, _LEFT + 6, WIDTH - _RIGHT - 6)
    up = Scale(y_ticks[0], y_ticks[-1], bottom, top)
    starts = f"; the scale starts at {y_ticks[0]:g}" if y_ticks[0] else ""
    parts = [text(8, 14, y_axis + starts, "soft")]
    for tick in y_ticks:
        parts.append(line("rule", _LEFT, up(tick), WIDTH - _RIGHT, up(tick)))
        parts.append(text(_LEFT - 6, up(tick) + 4, f"{tick:g}", "soft", "end"))
    for tick in x_ticks:
        parts.append(line("rule", across(tick), bottom, across(tick), bottom + 4))
        parts.append(text(across(tick), bottom + 18, f"{tick:g}", "soft", "middle"))
    parts.append(text(WIDTH - _RIGHT, bottom + 36, x_axis, "soft", "end"))
    parts += [path("other", drawn.points, across, up) for drawn in others]
    for drawn in named:
        parts.append(path(f"line c{drawn.number}", drawn.points, across, up, drawn.dash))
        parts += [
            marker(drawn.number, across(x), up(y), unfilled=drawn.unfilled)
            for x, y in drawn.points
            if x != drawn.marked
        ]
    for drawn in named:  # over all lines
        marked = [point for point in drawn.points if point[0] == drawn.marked]
        parts += [marker(drawn.number, across(x), up(y), large=True) for x, y in marked]
    ends = {
        str(drawn.number + 1): (across(drawn.points[-1][0]) + 9, up(drawn.points[-1][1]) + 3)
        for drawn in others
    }
    for label, (x, y) in spread_labels(ends, 6, 9).items():
        parts.append(text(x, y, label, "soft count", "middle"))
    y = bottom + 46
    for drawn in named if len(series) > 1 else ():
        y += LINE
        parts.append(line(f"line c{drawn.number}", 8, y - 4, 36, y - 4, drawn.dash))
        parts.append(marker(drawn.number, 22, y - 4, unfilled=drawn.unfilled))
        parts.append(text(44, y, drawn.label))
    for drawn in others if len(series) > 1 else ():
        y += LINE
        parts.append(line("other", 8, y - 4, 22, y - 4))
        parts.append(text(36, y, str(drawn.number + 1), "soft", "end"))
        parts.append(text(44, y, drawn.label))
    return document(y + 12, alt, parts)


def _row(
    label: str, top: float, bottom: float, gridlines: Sequence[float], note: str = ""
) -> list[str]:
    """Return a row: a label, a note, gridlines that avoid text, and a line below."""
    free = top + _LABEL + (LINE - 3 if note else 0)
    parts = [line("rule", x, free, x, bottom) for x in gridlines]
    parts += [line("rule", 8, bottom, WIDTH - 8, bottom), text(8, top + 15, label)]
    return [*parts, text(8, top + 32, note, "soft")] if note else parts


def _axis_below(bottom: float, axis: str, ticks: Sequence[float], scale: Scale) -> list[str]:
    numerals = [text(scale(t), bottom + 16, f"{t:g}", "soft", "middle") for t in ticks]
    return [*numerals, text(8, bottom + 34, axis, "soft")]


def _classes(number: int) -> tuple[str, str]:
    return (f"c{number}", f"f{number}") if number < COLOURS else ("ci", "fi")


def _span(stroke: str, fill: str, start: float, end: float, y: float) -> list[str]:
    """Return a line with a filled and an unfilled end."""
    return [
        line(f"line {stroke}", start, y, end, y),
        f'<circle class="{fill}" cx="{start:.1f}" cy="{y:g}" r="4"/>',
        f'<circle class="line unfilled {stroke}" cx="{end:.1f}" cy="{y:g}" r="3.5"/>',
    ]


def nice_ticks(
    low: float, high: float, whole: bool = False, most: float | None = None
) -> list[float]:
    """Return about five ticks that cover low to high, in steps of 1, 2 or 5 times 10^n."""
    if not (isfinite(low) and isfinite(high)) or high < low:
        raise ValueError(f"a scale cannot run from {low} to {high}")
    span = (high - low) or max(abs(high), 1.0)
    power = 10.0 ** floor(log10(span / 5))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span / 5 * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first, last = floor(low / step + 1e-9), ceil((low + span) / step - 1e-9)
    # Steps below 1 are rounded: 3 * 0.1 would be written as 0.30000000000000004.
    ticks = [round(k * step, 12) for k in range(first, last + 1)]
    if most is None or ticks[-1] <= most:
        return ticks
    return [*(tick for tick in ticks if tick < most), most]


def document(height: float, alt: str, parts: Iterable[str]) -> str:
    """Return an SVG document of width `WIDTH` and a height in pixels, with a text alternative."""
    title = escape(shown(alt))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(parts)
    ) + "\n</svg>\n"


def text(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    """Return text at its baseline, truncated if the chart is too narrow."""
    fitting = shown(label)
    if len(fitting) > _LABEL_LENGTH:
        fitting = fitting[: _LABEL_LENGTH - 1] + "…"
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(fitting)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    """Return a straight line with a class of the style sheet."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}{dashes}/>'


def path(
    kind: str, points: Iterable[tuple[float, float]], across: Scale, up: Scale, dash: str = ""
) -> str:
    """Return a line through points in the units of two scales."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}"{dashes}/>'


def marker(number: int, x: float, y: float, large: bool = False, unfilled: bool = False) -> str:
    """Return the marker of a system; large markers have an edge that separates them from lines."""
    r = 6 if large else 3.5
    stroke, fill = _classes(number)
    kind = f"{fill} kept" if large else f"unfilled {stroke}" if unfilled else fill
    corners = _CORNERS[number] if number < COLOURS else ()
    if not corners:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    places = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{kind}" points="{places}"/>'
