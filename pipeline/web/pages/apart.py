"""Placement of chart labels without overlaps."""

from collections.abc import Mapping

Place = tuple[float, float]
"""Point (x, y); y grows downwards."""


def apart(labels: Mapping[str, Place], letter: float, height: float) -> dict[str, Place]:
    """Return the points of labels, moved down until none overlap.

    Parameters
    ----------
    labels : mapping of str to Place. Centre of the baseline of each text.
    letter, height : float. Approximate width of a letter, and height of a line.
    """
    placed: dict[str, Place] = {}
    for word, (x, y) in sorted(labels.items(), key=lambda label: (label[1][1], label[0])):
        for other, (ox, oy) in sorted(placed.items(), key=lambda label: label[1][1]):
            width = letter * (len(word) + len(other)) / 2
            if abs(ox - x) < width and abs(oy - y) < height:
                y = oy + height
        placed[word] = (x, y)
    return placed
