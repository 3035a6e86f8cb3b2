"""Values of the template `map.html`: points and labels of an SVG, data for its script."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from pipeline.store.wording import counted
from pipeline.studies.embedding_map.make_map import EmbeddingMap
from pipeline.web.pages.rendering import shown, spread_labels

Sheet = tuple[str, int, int]
"""File of the thumbnails of all images of a map, row by row, and its columns and rows."""

WIDTH = 1000  # width of the map in SVG units; the height follows from the positions, within bounds
_EDGE, _LEAST_HEIGHT = 40, 600
_LETTER, _LINE = 18, 32  # of a wide bold font of 24 units; 34 units on a phone, numbers alone


@dataclass(frozen=True)
class ShownGroup:
    """A group of the map."""

    number: int  # number from 1
    images: int
    label: str  # the most typical word that labels no larger group, or ""
    words: str
    x: float
    y: float


@dataclass(frozen=True)
class MapValues:
    """Values of the template."""

    height: int
    points: list[tuple[float, float, int]]  # x, y and group number of each image
    groups: list[ShownGroup]
    alt: str
    note: str  # projection, and number of omitted images
    data: Markup  # JSON for the script, safe within a `script` element


def map_values(
    embedded: EmbeddingMap, text_of: Callable[[str], str], sheet: Sheet | None = None
) -> MapValues:
    """Return the template values; without a sheet the script requests images from the server."""
    low, high = embedded.places.min(axis=0), embedded.places.max(axis=0)
    across, up = (float(span) or 1.0 for span in high - low)
    inner = WIDTH - 2 * _EDGE
    height = 2 * _EDGE + min(inner, max(_LEAST_HEIGHT, inner * up / across))
    x = _EDGE + (embedded.places[:, 0] - low[0]) / across * inner
    y = height - _EDGE - (embedded.places[:, 1] - low[1]) / up * (height - 2 * _EDGE)
    points = [
        (round(px, 1), round(py, 1), group + 1)
        for px, py, group in zip(x.tolist(), y.tolist(), embedded.groups.tolist(), strict=True)
    ]
    groups = _groups(embedded, points)
    data = {
        "ids": [shown(image) for image in embedded.ids],
        "texts": [shown(text_of(image)) for image in embedded.ids],
        "near": embedded.neighbours.tolist(),
        "scores": np.round(embedded.scores.astype(np.float64), 4).tolist(),
        "sheet": sheet,
    }
    names = "; ".join(f"{group.number} {group.words}".strip() for group in groups)
    alt = f"{counted(len(points), 'image')} as points, in {counted(len(groups), 'group')}: {names}"
    return MapValues(
        round(height), points, groups, alt, _note(embedded),
        # Escaped so that no text can end the script element.
        Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
    )  # fmt: skip


def _groups(embedded: EmbeddingMap, points: list[tuple[float, float, int]]) -> list[ShownGroup]:
    """Return the groups with labels at the median of their points."""
    middles = {}
    for number in range(1, len(embedded.words) + 1):
        positions = np.array([point[:2] for point in points if point[2] == number])
        middles[number] = tuple(np.median(positions, axis=0).tolist())
    labels: dict[str, int] = {}
    used = set[str]()
    for number, words in enumerate(embedded.words, 1):
        word = next((word for word in words if word not in used), "")
        used.add(word)
        labels[f"{number} {word}".strip()] = number
    places = spread_labels(
        {label: middles[number] for label, number in labels.items()}, _LETTER, _LINE
    )
    sizes = np.bincount(embedded.groups).tolist()
    return [
        ShownGroup(
            number, sizes[number - 1], label.partition(" ")[2],
            ", ".join(embedded.words[number - 1]), *(round(v, 1) for v in places[label]),
        )
        for label, number in labels.items()
    ]  # fmt: skip


def _note(embedded: EmbeddingMap) -> str:
    how = "by t-SNE, which keeps near images together; distances of groups mean little"
    if embedded.shares:
        first, second = (f"{100 * share:.0f} %" for share in embedded.shares)
        how = f"by their first two principal components, {first} and {second} of the variance"
    note = f"{counted(len(embedded.ids), 'image')}, placed {how}. "
    note += "Groups are k-means of the embeddings."
    if embedded.left_out:
        note += f" {counted(embedded.left_out, 'more image')} are left out; those shown are drawn."
    return note
