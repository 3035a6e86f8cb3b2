"""Charts over axes: dots with intervals, spans before and after, and lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.svg import (
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
    """Two spans on one scale, the first None where there is none; each from its filled end."""

    label: str
    before: tuple[float, float] | None
    after: tuple[float, float]


def dot_chart(bars: Sequence[Bar], axis: str, alt: str) -> str:
    """Draw values as dots on a scale from 0, one below the other, each under its label.

    Parameters
    ----------
    bars : from top to bottom, at least one, no value below 0.
    axis : what the scale is of.
    alt : what there is to see, for those who cannot.
    """
    ticks = nice_ticks(0.0, max(bar.value if bar.high is None else bar.high for bar in bars))
    scale = Scale(ticks[0], ticks[-1], 8, WIDTH - 52)
    step, top = 33, 8
    bottom = top + step * len(bars)
    parts = [line("rule", scale(t), top, scale(t), bottom) for t in ticks]
    for number, bar in enumerate(bars):
        y = top + step * number
        parts.append(text(8, y + 13, bar.label))
        if bar.low is not None and bar.high is not None:
            parts.append(line("line c0", scale(bar.low), y + 25, scale(bar.high), y + 25))
        parts.append(marker(0, scale(bar.value), y + 25))
        parts.append(text(WIDTH - 8, y + 29, f"{bar.value:.1f}", anchor="end"))
    parts += [text(scale(t), bottom + 16, numeral(t), "soft", _anchor(t, ticks)) for t in ticks]
    parts.append(text(8, bottom + 34, axis, "soft"))
    return document(bottom + 44, alt, parts)


def span_chart(rows: Sequence[Spans], axis: str, alt: str) -> str:
    """Draw two spans under each label: grey and, below it, coloured; filled and hollow ends.

    Parameters
    ----------
    rows : from top to bottom, at least one, no value below 0.
    axis : what the scale is of.
    alt : what there is to see, for those who cannot.
    """
    ticks = nice_ticks(0.0, max(v for row in rows for v in (*row.after, *(row.before or ()))))
    scale = Scale(ticks[0], ticks[-1], 14, WIDTH - 14)
    step, top = 40, 8
    bottom = top + step * len(rows)
    parts = [line("rule", scale(t), top, scale(t), bottom) for t in ticks]
    for number, row in enumerate(rows):
        y = top + step * number
        parts.append(text(8, y + 13, row.label))
        drawn = (("cs", "soft", row.before, y + 21), ("c0", "f0", row.after, y + 31))
        for stroke, fill, span, at in drawn:
            if span is not None:
                parts.append(line(f"line {stroke}", scale(span[0]), at, scale(span[1]), at))
                parts.append(f'<circle class="{fill}" cx="{scale(span[0]):.1f}" cy="{at}" r="4"/>')
                hollow = f'cx="{scale(span[1]):.1f}" cy="{at}" r="3.5"'
                parts.append(f'<circle class="line hollow {stroke}" {hollow}/>')
    parts += [text(scale(t), bottom + 16, numeral(t), "soft", "middle") for t in ticks]
    parts.append(text(8, bottom + 34, axis, "soft"))
    return document(bottom + 44, alt, parts)


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
    across = Scale(low, high, _LEFT + 6, WIDTH - _RIGHT - 6)
    up = Scale(y_ticks[0], y_ticks[-1], bottom, top)
    parts = [text(8, 14, y_axis, "soft")]
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
        parts += [marker(number, across(x), up(y), large=x == one.marked) for x, y in one.points]
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


def _anchor(tick: float, ticks: Sequence[float]) -> str:
    return "start" if tick == ticks[0] else "middle"
