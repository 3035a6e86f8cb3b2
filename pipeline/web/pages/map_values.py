"""Values of the template `map.html`: points and labels of an SVG, data for its script."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from pipeline.store.wording import counted
from pipeline.studies.embedding_map.make_map import EmbeddingMap
from pipeline.web.pages.apart import apart
from pipeline.web.pages.rendering import shown

WIDTH = 1000
"""Width of the map in SVG units; the height follows from the positions, within bounds."""

_EDGE, _LEAST_HEIGHT = 40, 600
_LETTER, _LINE = 13, 28


@dataclass(frozen=True)
class Sheet:
    """Thumbnails of all images of a map in one file, row by row.

    Attributes
    ----------
    file : str. Its address on the page.
    columns, rows : int. Numbers of thumbnails.
    """

    file: str
    columns: int
    rows: int


@dataclass(frozen=True)
class ShownGroup:
    """A group of the map.

    Attributes
    ----------
    number : int. Number from 1.
    images : int. Number of images.
    label : str. The most typical word that labels no larger group, or "".
    words : str. All typical words.
    x, y : float. Position of the label.
    """

    number: int
    images: int
    label: str
    words: str
    x: float
    y: float


@dataclass(frozen=True)
class MapValues:
    """Values of the template.

    Attributes
    ----------
    height : int. Height of the SVG.
    points : list. x, y and group number of each image.
    groups : list of ShownGroup. By number.
    alt : str. Text alternative of the map.
    note : str. Projection, and number of omitted images.
    data : Markup. JSON for the script, safe within a `script` element.
    """

    height: int
    points: list[tuple[float, float, int]]
    groups: list[ShownGroup]
    alt: str
    note: str
    data: Markup


def map_values(
    made: EmbeddingMap, text_of: Callable[[str], str], sheet: Sheet | None = None
) -> MapValues:
    """Return the template values of a map.

    Parameters
    ----------
    made : EmbeddingMap. The map.
    text_of : callable. Returns a caption of an image id, or "".
    sheet : Sheet or None. Thumbnails; None: the script requests each image from the server.
    """
    low, high = made.places.min(axis=0), made.places.max(axis=0)
    across, up = (float(span) or 1.0 for span in high - low)
    inner = WIDTH - 2 * _EDGE
    height = 2 * _EDGE + min(inner, max(_LEAST_HEIGHT, inner * up / across))
    x = _EDGE + (made.places[:, 0] - low[0]) / across * inner
    y = height - _EDGE - (made.places[:, 1] - low[1]) / up * (height - 2 * _EDGE)
    points = [
        (round(px, 1), round(py, 1), group + 1)
        for px, py, group in zip(x.tolist(), y.tolist(), made.groups.tolist(), strict=True)
    ]
    groups = _groups(made, points)
    data = {
        "ids": [shown(image) for image in made.ids],
        "texts": [shown(text_of(image)) for image in made.ids],
        "near": made.neighbours.tolist(),
        "scores": np.round(made.scores.astype(np.float64), 4).tolist(),
        "sheet": sheet and [sheet.file, sheet.columns, sheet.rows],
    }
    names = "; ".join(f"{group.number} {group.words}".strip() for group in groups)
    alt = f"{counted(len(points), 'image')} as points, in {counted(len(groups), 'group')}: {names}"
    return MapValues(
        round(height), points, groups, alt, _note(made),
        # Escaped so that no text can end the script element.
        Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
    )  # fmt: skip


def _groups(made: EmbeddingMap, points: list[tuple[float, float, int]]) -> list[ShownGroup]:
    """Return the groups with labels at the median of their points."""
    middles = {}
    for number in range(1, len(made.words) + 1):
        own = np.array([point[:2] for point in points if point[2] == number])
        middles[number] = tuple(np.median(own, axis=0).tolist())
    labels: dict[str, int] = {}
    used = set[str]()
    for number, words in enumerate(made.words, 1):
        word = next((word for word in words if word not in used), "")
        used.add(word)
        labels[f"{number} {word}".strip()] = number
    places = apart({label: middles[number] for label, number in labels.items()}, _LETTER, _LINE)
    sizes = np.bincount(made.groups).tolist()
    return [
        ShownGroup(
            number, sizes[number - 1], label.partition(" ")[2],
            ", ".join(made.words[number - 1]), *(round(v, 1) for v in places[label]),
        )
        for label, number in labels.items()
    ]  # fmt: skip


def _note(made: EmbeddingMap) -> str:
    how = "by t-SNE, which keeps near images together; distances of groups mean little"
    if made.shares:
        first, second = (f"{100 * share:.0f} %" for share in made.shares)
        how = f"by their first two principal components, {first} and {second} of the variance"
    note = f"{counted(len(made.ids), 'image')}, placed {how}. Groups are k-means of the embeddings."
    if made.left_out:
        note += f" {counted(made.left_out, 'more image')} are left out; those shown are drawn."
    return note
