"""Charts over axes: dots with intervals, spans before and after, and lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.drawing.svg import (
    LINE,
    WIDTH,
    Scale,
    document,
    line,
    marker,
    nice_ticks,
    numeral,
    path,
    text,
)

_LEFT, _RIGHT, _PLOT_HEIGHT = 46, 12, 200
_LABEL = 21  # of a row, from its top: below it gridlines may start
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
    alt : what there is to see, for those who cannot.
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
    alt : what there is to see, for those who cannot.
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
    alt : what there is to see, for those who cannot.
    """
    points = [point for one in (*series, *others) for point in one.points]
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
    parts += [path("other", one.points, across, up) for one in others]
    for number, one in enumerate(series):
        parts.append(path(f"line c{number}", one.points, across, up, _DASHES[number]))
        parts += [marker(number, across(x), up(y)) for x, y in one.points if x != one.marked]
    for number, one in enumerate(series):  # over all lines
        marked = [point for point in one.points if point[0] == one.marked]
        parts += [marker(number, across(x), up(y), large=True) for x, y in marked]
    y = bottom + 46
    for number, one in enumerate(series if len(series) > 1 or others else ()):
        y += LINE
        parts.append(line(f"line c{number}", 8, y - 4, 36, y - 4, _DASHES[number]))
        parts.append(marker(number, 22, y - 4))
        parts.append(text(44, y, one.label))
    if others:
        y += LINE
        parts.append(line("other", 8, y - 4, 36, y - 4))
        parts.append(text(44, y, f"{len(others)} other{'s' if len(others) > 1 else ''}"))
    return document(y + 12, alt, parts)


def _row(
    label: str, top: float, bottom: float, gridlines: Sequence[float], note: str = ""
) -> list[str]:
    """A label, under it a note and gridlines that run through no text, and a line that ends all."""
    free = top + _LABEL + (LINE - 3 if note else 0)
    parts = [line("rule", x, free, x, bottom) for x in gridlines]
    parts += [line("rule", 8, bottom, WIDTH - 8, bottom), text(8, top + 15, label)]
    return [*parts, text(8, top + 32, note, "soft")] if note else parts


def _axis_below(bottom: float, axis: str, ticks: Sequence[float], scale: Scale) -> list[str]:
    numerals = [text(scale(t), bottom + 16, numeral(t), "soft", "middle") for t in ticks]
    return [*numerals, text(8, bottom + 34, axis, "soft")]


def _span(stroke: str, fill: str, start: float, end: float, y: float) -> list[str]:
    """A line, its filled end and its hollow one."""
    return [
        line(f"line {stroke}", start, y, end, y),
        f'<circle class="{fill}" cx="{start:.1f}" cy="{y:g}" r="4"/>',
        f'<circle class="line hollow {stroke}" cx="{end:.1f}" cy="{y:g}" r="3.5"/>',
    ]
