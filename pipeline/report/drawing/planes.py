"""Charts of planes, at one scale both ways: letters of groups, and words over pictures."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape

from pipeline.pages.rendering import shown
from pipeline.report.drawing.svg import COLOURS, LINE, WIDTH, Scale, document, line, text

_LABEL_HEIGHT, _LETTER_WIDTH = 15, 8
"""About what a word over a picture takes, in pixels."""


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
    across = Scale(-(reach or 1.0), reach or 1.0, 20, 20 + size)
    up = Scale(-(reach or 1.0), reach or 1.0, top + size, top)
    parts = [
        text(8, 14, y_axis, "soft"),
        line("rule", across(0), top, across(0), top + size),
        line("rule", 20, up(0), 20 + size, up(0)),
        text(WIDTH - 8, top + size + 16, x_axis, "soft", "end"),
    ]
    y = top + size + 26
    for number, (name, points) in enumerate(groups.items()):
        letter, kind = chr(ord("A") + number), f"letter f{number % COLOURS}"
        parts += [text(across(px), up(py) + 4, letter, kind, "middle") for px, py in points]
        y += LINE
        parts.append(text(8, y, letter, kind))
        parts.append(text(28, y, name))
    return document(y + 12, alt, parts)


def picture_chart(
    words: Mapping[str, tuple[float, float]],
    pictures: Sequence[tuple[str, bytes, tuple[float, float]]],
    x_axis: str,
    y_axis: str,
    alt: str,
) -> str:
    """Draw words over small pictures at one scale both ways.

    Parameters
    ----------
    words : to their points about (0, 0).
    pictures : what each shows, its JPEG or b"" if there is none, and its point.
    x_axis, y_axis : what the directions are.
    alt : what there is to see, for those who cannot.
    """
    points = [*words.values(), *(point for _, _, point in pictures)]
    reach = max((max(abs(x), abs(y)) for x, y in points), default=0.0) or 1.0
    side, edge, top, size = 38, 24, 26, WIDTH - 64
    across = Scale(-reach, reach, 8 + edge, 8 + edge + size)
    up = Scale(-reach, reach, top + edge + size, top + edge)
    bottom = top + 2 * edge + size
    parts = [
        text(8, 14, y_axis, "soft"),
        line("rule", across(0), top, across(0), bottom),
        line("rule", 8, up(0), WIDTH - 8, up(0)),
        text(WIDTH - 8, bottom + 16, x_axis, "soft", "end"),
    ]
    for name, jpeg, (x, y) in pictures:
        left, above = across(x) - side / 2, up(y) - side / 2
        place = f'x="{left:.1f}" y="{above:.1f}" width="{side}" height="{side}"'
        if jpeg:
            data = b64encode(jpeg).decode()
            parts.append(
                f'<image {place} href="data:image/jpeg;base64,{data}" '
                f'preserveAspectRatio="xMidYMid slice"><title>{escape(shown(name))}</title></image>'
            )
        parts.append(f'<rect class="frame" {place}/>')
    for word, (x, y) in _apart({w: (across(x), up(y) + 5) for w, (x, y) in words.items()}).items():
        parts.append(text(x, y, word, "word", "middle"))
    return document(bottom + 26, alt, parts)


def _apart(labels: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Push labels down until none lies on another."""
    placed: dict[str, tuple[float, float]] = {}
    for word, (x, y) in sorted(labels.items(), key=lambda one: (one[1][1], one[0])):
        for other, (ox, oy) in sorted(placed.items(), key=lambda one: one[1][1]):
            width = _LETTER_WIDTH * (len(word) + len(other)) / 2
            if abs(ox - x) < width and abs(oy - y) < _LABEL_HEIGHT:
                y = oy + _LABEL_HEIGHT
        placed[word] = (x, y)
    return placed
