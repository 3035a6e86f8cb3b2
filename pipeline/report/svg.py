"""Charts as SVG text: narrow enough for a phone, legible on light and dark, the same bytes always.

Drawn here and not by a plotting library, because what a page of figures needs is short: three kinds
of chart, real text at one size, and colours that follow the reader's scheme, which a library that
writes fixed colours cannot give.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from pipeline.report.text import shown

WIDTH = 380
"""Of every chart, in CSS pixels at its natural size, where text is 12 pixels high."""

COLOURS = 4
"""Series that a colour, a dash and a marker tell apart."""

_LEFT, _RIGHT, _PLOT_HEIGHT, _LINE = 46, 12, 200, 18
_LABEL_LENGTH = 52

_STYLE = """
svg{color-scheme:light dark;--page:#fff;--ink:#1c2024;--soft:#596069;--rule:#dfe3e8;
--c0:#0b62a4;--c1:#b84c00;--c2:#00785a;--c3:#97407a;--other:#c3c9d0}
@media (prefers-color-scheme:dark){svg{--page:#16191d;--ink:#e8eaed;--soft:#a3abb5;--rule:#343a42;
--c0:#62b5f0;--c1:#f0a04b;--c2:#3fcf9f;--c3:#e79bcb;--other:#525a64}}
.page{fill:var(--page)}text{fill:var(--ink);font:12px system-ui,sans-serif}
.soft{fill:var(--soft)}.rule{stroke:var(--rule)}.line{fill:none;stroke-width:2}
.other{stroke:var(--other);stroke-width:1;fill:none}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.letter{font-weight:700}
"""
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


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


def dot_chart(bars: Sequence[Bar], axis: str, alt: str) -> str:
    """Draw values as dots on a scale from 0, one below the other, each under its label.

    Parameters
    ----------
    bars : from top to bottom, at least one, no value below 0.
    axis : what the scale is of.
    alt : what there is to see, for those who cannot.
    """
    ticks = nice_ticks(0.0, max(bar.value if bar.high is None else bar.high for bar in bars))
    scale = _Scale(ticks[0], ticks[-1], 8, WIDTH - 52)
    step, top = 36, 8
    bottom = top + step * len(bars)
    parts = [_line("rule", scale(t), top, scale(t), bottom) for t in ticks]
    for number, bar in enumerate(bars):
        y = top + step * number
        parts.append(_text(8, y + 13, bar.label))
        if bar.low is not None and bar.high is not None:
            parts.append(_line("line c0", scale(bar.low), y + 25, scale(bar.high), y + 25))
        parts.append(_marker(0, scale(bar.value), y + 25))
        parts.append(_text(WIDTH - 8, y + 29, f"{bar.value:.1f}", anchor="end"))
    parts += [_text(scale(t), bottom + 16, _number(t), "soft", _anchor(t, ticks)) for t in ticks]
    parts.append(_text(8, bottom + 34, axis, "soft"))
    return _document(bottom + 44, alt, parts)


def line_chart(
    series: Sequence[Series], others: Sequence[Series], x_axis: str, y_axis: str, alt: str
) -> str:
    """Draw lines over one pair of axes; y starts at 0.

    Parameters
    ----------
    series : at most `COLOURS` of them, told apart by colour, dash and marker.
    others : drawn thin and grey behind them, with one line of the legend for all.
    x_axis, y_axis : what the scales are of.
    alt : what there is to see, for those who cannot.
    """
    points = [point for one in (*series, *others) for point in one.points]
    y_ticks = nice_ticks(0.0, max(y for _, y in points))
    x_ticks = nice_ticks(min(x for x, _ in points), max(x for x, _ in points), whole=True)
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    x_ticks = [t for t in x_ticks if low <= t <= high] or [low]
    top = 26
    bottom = top + _PLOT_HEIGHT
    across = _Scale(low, high, _LEFT + 6, WIDTH - _RIGHT - 6)
    up = _Scale(y_ticks[0], y_ticks[-1], bottom, top)
    parts = [_text(8, 14, y_axis, "soft")]
    for tick in y_ticks:
        parts.append(_line("rule", _LEFT, up(tick), WIDTH - _RIGHT, up(tick)))
        parts.append(_text(_LEFT - 6, up(tick) + 4, _number(tick), "soft", "end"))
    for tick in x_ticks:
        parts.append(_line("rule", across(tick), bottom, across(tick), bottom + 4))
        parts.append(_text(across(tick), bottom + 18, _number(tick), "soft", "middle"))
    parts.append(_text(WIDTH - _RIGHT, bottom + 36, x_axis, "soft", "end"))
    parts += [_path("other", one.points, across, up) for one in others]
    for number, one in enumerate(series):
        parts.append(_path(f"line c{number}", one.points, across, up, _DASHES[number]))
        parts += [_marker(number, across(x), up(y), large=x == one.marked) for x, y in one.points]
    y = bottom + 46
    for number, one in enumerate(series if len(series) > 1 or others else ()):
        y += _LINE
        parts.append(_line(f"line c{number}", 8, y - 4, 36, y - 4, _DASHES[number]))
        parts.append(_marker(number, 22, y - 4))
        parts.append(_text(44, y, one.label))
    if others:
        y += _LINE
        parts.append(_line("other", 8, y - 4, 36, y - 4))
        parts.append(_text(44, y, f"{len(others)} other{'s' if len(others) > 1 else ''}"))
    return _document(y + 12, alt, parts)


def letter_chart(
    groups: Mapping[str, Sequence[tuple[float, float]]], x_axis: str, y_axis: str, alt: str
) -> str:
    """Draw points as letters, one letter and colour a group, at one scale both ways.

    Parameters
    ----------
    groups : at most 26, the name in the legend to the group's points about (0, 0).
    x_axis, y_axis : what the directions are.
    alt : what there is to see, for those who cannot.
    """
    reach = max((max(abs(x), abs(y)) for points in groups.values() for x, y in points), default=0.0)
    top, size = 26, WIDTH - 40
    across = _Scale(-(reach or 1.0), reach or 1.0, 20, 20 + size)
    up = _Scale(-(reach or 1.0), reach or 1.0, top + size, top)
    parts = [
        _text(8, 14, y_axis, "soft"),
        _line("rule", across(0), top, across(0), top + size),
        _line("rule", 20, up(0), 20 + size, up(0)),
        _text(WIDTH - 8, top + size + 16, x_axis, "soft", "end"),
    ]
    y = top + size + 26
    for number, (name, points) in enumerate(groups.items()):
        letter, kind = chr(ord("A") + number), f"letter f{number % COLOURS}"
        parts += [_text(across(px), up(py) + 4, letter, kind, "middle") for px, py in points]
        y += _LINE
        parts.append(_text(8, y, letter, kind))
        parts.append(_text(28, y, name))
    return _document(y + 12, alt, parts)


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
class _Scale:
    """Values from `low` to `high` laid out from `start` to `end` pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _document(height: float, alt: str, parts: Iterable[str]) -> str:
    title = escape(shown(alt))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="page" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(parts)
    ) + "\n</svg>\n"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    line = shown(text)
    if len(line) > _LABEL_LENGTH:
        line = line[: _LABEL_LENGTH - 1] + "…"
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(line)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}{dashes}/>'


def _path(
    kind: str, points: Iterable[tuple[float, float]], across: _Scale, up: _Scale, dash: str = ""
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{places}"{dashes}/>'


def _marker(number: int, x: float, y: float, large: bool = False) -> str:
    """A circle, a square, a triangle or a diamond."""
    r = 6.5 if large else 3.5
    if number == 0:
        return f'<circle class="f0" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r * 1.2), (r * 1.2, r), (-r * 1.2, r)),
        3: ((0, -r * 1.3), (r * 1.3, 0), (0, r * 1.3), (-r * 1.3, 0)),
    }[number]
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="f{number}" points="{places}"/>'


def _anchor(tick: float, ticks: Sequence[float]) -> str:
    return "start" if tick == ticks[0] else "middle"


def _number(value: float) -> str:
    return f"{value:g}"
