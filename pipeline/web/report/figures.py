"""Figures of a report: each is an SVG chart with its numbers as CSV and its message in words."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from pipeline.retrieval.measures import RSUM
from pipeline.store.files import write_text
from pipeline.store.wording import csv_text
from pipeline.studies.embedding_map.plane import Closeness, Point
from pipeline.web.pages.rendering import shown, spread_labels
from pipeline.web.report.charts import (
    COLOURS,
    LINE,
    WIDTH,
    Bar,
    Scale,
    Series,
    Spans,
    document,
    dot_chart,
    line,
    line_chart,
    span_chart,
    text,
)
from pipeline.web.report.head_inspection import WordPlane
from pipeline.web.report.retrievals import PLACED, LengthBin, SentencePlane

History = Sequence[Mapping[str, Any]]

_LABEL_HEIGHT, _LETTER_WIDTH = 16, 10  # of a word and of a wide letter, in pixels


@dataclass(frozen=True)
class Figure:
    """A chart with its heading, caption and data."""

    name: str  # base name of its files, without suffix
    title: str
    note: str
    alt: str
    svg: str
    csv: str

    def write(self, folder: Path) -> list[str]:
        """Write both files and return their names."""
        write_text(folder / f"{self.name}.svg", self.svg)
        write_text(folder / f"{self.name}.csv", self.csv)
        return [f"{self.name}.svg", f"{self.name}.csv"]


def rsum_figure(name: str, bars: Sequence[Bar]) -> Figure:
    """Return the chart of `rsum` by experiment, highest first, with intervals if known."""
    ordered = sorted(bars, key=lambda bar: -bar.value)
    best, last = ordered[0], ordered[-1]
    alt = f"rsum of {len(bars)} experiments. {best.label} has {best.value:.1f}"
    alt += f", the greatest; {last.label} has {last.value:.1f}, the least." if bars[1:] else "."
    rows = [[b.label, b.value, b.low, b.high] for b in ordered]
    return Figure(
        name,
        "rsum by experiment",
        "Sum of the six R@K, 0–600. Lines are 95 % bootstrap intervals over images: the variation "
        "expected with other images of the same kind.",
        alt,
        dot_chart(ordered, "rsum", alt, RSUM.limits[1]),
        _csv(["experiment", "rsum", "rsum_low", "rsum_high"], rows),
    )


def length_figure(
    name: str, lengths: Mapping[str, Sequence[LengthBin]], numbers: Mapping[str, int]
) -> Figure:
    """Return the chart of R@10 of sentences by number of words."""
    lines = [
        Series(label, tuple((each.words, each.r10) for each in bins), number=numbers[label])
        for label, bins in lengths.items()
    ]
    rows = [
        [label, each.first, each.last, each.words, each.queries, each.r10, each.median_rank]
        for label, bins in lengths.items()
        for each in bins
    ]
    first, bins = next(iter(lengths.items()))
    alt = f"R@10 of sentences that look for their image, against their number of words. {first}: "
    alt += "; ".join(f"{each.label} words {each.r10:.1f} %" for each in bins) + "."
    columns = ["experiment", "words_from", "words_to", "words", "queries", "text_to_image_r10"]
    return Figure(
        name,
        "R@10 against the length of the sentence",
        "A sentence searches for its image. Each point is a range of lengths with enough "
        "sentences, at their mean number of words.",
        alt,
        line_chart(lines, "words", "t→i R@10, per cent", alt, 100.0),
        _csv([*columns, "median_rank"], rows),
    )


def curve_of(
    label: str, history: History, column: str, number: int, unfilled: bool = False
) -> Series | None:
    """Return a column of a history by epoch; None without epochs or without the column."""
    trained = [epoch for epoch in history if column in epoch and "loss" in epoch]
    if len(trained) < 2:
        return None
    best = [float(epoch["epoch"]) for epoch in trained if epoch.get("best")]
    points = tuple((float(epoch["epoch"]), float(epoch[column])) for epoch in trained)
    return Series(label, points, best[-1] if best else None, number, unfilled)


def epoch_figure(name: str, measure: str, curves: Sequence[Series], split: str) -> Figure:
    """Return the chart of a validation metric by epoch."""
    first = curves[0]
    alt = f"{measure} on {split or 'the validation split'} against the epoch. {first.label} goes "
    alt += f"from {first.points[0][1]:.1f} after epoch {first.points[0][0]:g} to "
    alt += f"{first.points[-1][1]:.1f} after epoch {first.points[-1][0]:g}."
    rows = [
        [curve.label, x, y, int(x == curve.marked)] for curve in curves for x, y in curve.points
    ]
    axis = measure if measure == "rsum" else f"{measure}, per cent"
    return Figure(
        name,
        f"{measure} against the epoch",
        f"On {split or 'the validation split'} during training. The large marker is the selected "
        "epoch.",
        alt,
        line_chart(curves, "epoch", axis, alt, RSUM.limits[1] if measure == "rsum" else 100.0),
        _csv(["curve", "epoch", measure, "kept"], rows),
    )


def words_figure(
    name: str, plane: WordPlane, captions: Mapping[str, str], thumbnail: Callable[[str], bytes]
) -> Figure:
    """Return the chart of single words among images whose sentences contain them."""
    images = [
        (word, image, point) for word, of in plane.images.items() for image, point in of.items()
    ]
    alt = f"The words {', '.join(plane.words)} and {len(images)} images whose sentences contain "
    alt += "them, in the plane of their first two principal components. The images of a word that "
    alt += "the space has learnt are in the same direction from the centre as the word."
    axes = share_axes(plane.shares)
    rows = [[word, "", *point] for word, point in plane.words.items()]
    rows += [[word, image, *point] for word, image, point in images]
    return Figure(
        name,
        "Single words among images",
        "Each word is embedded as a sentence of its own. Selected are the words on which the "
        "sentences of an image agree most, and images most of whose sentences contain the word. "
        "Words are centred on the mean of words, images on the mean of images.",
        alt,
        thumbnail_chart(
            plane.words,
            [(captions.get(image) or image, thumbnail(image), point) for _, image, point in images],
            *axes,
            alt,
        ),
        _csv(["word", "image", "component_1", "component_2"], rows),
    )


def distances_figure(
    name: str, rows: Sequence[tuple[str, Closeness | str, Closeness]], numbers: Mapping[str, int]
) -> Figure:
    """Return the chart of mean distances between sentences of the same and of different images."""
    apart = [(e, b if isinstance(b, str) else _distances(b), _distances(a)) for e, b, a in rows]
    first = apart[0]
    alt = f"Cosine distances of sentences in {len(rows)} experiments, before and after the head. "
    alt += f"After that of {first[0]}, {first[2][0]:.2f} within an image and {first[2][1]:.2f} "
    alt += "between images."
    return Figure(
        name,
        "Distances of sentences, before and after the head",
        "Mean cosine distance (1 − cosine, 0–2) of two sentences. The further left a line starts "
        "and the longer it is, the better sentences of different images are separated.",
        alt,
        span_chart(
            [Spans(e, b, a, numbers[e]) for e, b, a in apart],
            ("grey: features, before the head", "coloured: embeddings, after the head"),
            ("two sentences of one image", "two of different images"),
            "cosine distance",
            alt,
        ),
        _csv(
            ["experiment", "features_within", "features_between", "within", "between"],
            [[e, *(("", "") if isinstance(b, str) else b), *a] for e, b, a in apart],
        ),
    )


def _distances(close: Closeness) -> tuple[float, float]:
    return 1 - close.within, 1 - close.between


def places_figure(
    name: str, plane: SentencePlane, captions: Mapping[str, str], before: bool
) -> Figure:
    """Return the scatter plot of the sentences of some images, with one letter per image."""
    places, shares = plane
    way = "in the plane of their first two principal components" if shares else "placed by t-SNE"
    alt = f"The sentences of {len(places)} images {way}, one letter per image. The closer equal "
    alt += "letters are, the better the space groups the sentences of one image."
    axes = share_axes(shares) if shares else ("t-SNE", "")
    vectors = "features, before the head," if before else "embeddings"
    # An image without another name keeps its id, so that no two groups become one.
    named = {captions.get(image) or image: points for image, points in places.items()}
    if len(named) < len(places):
        named = {f"{image}: {captions.get(image, '')}": of for image, of in places.items()}
    rows = [[image, x, y] for image, points in places.items() for x, y in points]
    return Figure(
        name,
        "Sentences of some images in the plane" + ", before the head" * before,
        f"{'Principal components' if shares else f't-SNE, with those of up to {PLACED} images,'} "
        f"of the {vectors} of all sentences of {len(places)} images drawn by the seed. Each letter "
        "is a sentence; the legend has the first one of each image.",
        alt,
        letter_chart(named, *axes, alt),
        _csv(["image", "component_1", "component_2"], rows),
    )


def letter_chart(groups: Mapping[str, Sequence[Point]], x_axis: str, y_axis: str, alt: str) -> str:
    """Draw points as letters, one letter and colour per group, with one scale for both axes."""
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


def thumbnail_chart(
    words: Mapping[str, Point],
    thumbnails: Sequence[tuple[str, bytes, Point]],
    x_axis: str,
    y_axis: str,
    alt: str,
) -> str:
    """Draw words over thumbnails, with one scale for both axes."""
    points = [*words.values(), *(point for _, _, point in thumbnails)]
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
    for name, jpeg, (x, y) in thumbnails:
        left, above = across(x) - side / 2, up(y) - side / 2
        attributes = f'x="{left:.1f}" y="{above:.1f}" width="{side}" height="{side}"'
        if jpeg:
            data = b64encode(jpeg).decode()
            parts.append(
                f'<image {attributes} href="data:image/jpeg;base64,{data}" '
                f'preserveAspectRatio="xMidYMid slice"><title>{escape(shown(name))}</title></image>'
            )
        parts.append(f'<rect class="frame" {attributes}/>')
    at = {word: (across(x), up(y) + 5) for word, (x, y) in words.items()}
    for word, (x, y) in spread_labels(at, _LETTER_WIDTH, _LABEL_HEIGHT).items():
        parts.append(text(x, y, word, "word", "middle"))
    return document(bottom + 26, alt, parts)


def share_axes(shares: tuple[float, float]) -> tuple[str, str]:
    """Return the names of two principal components with their explained variance."""
    x, y = (f"component {k}, {100 * s:.0f} % of the variance" for k, s in enumerate(shares, 1))
    return x, y


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return csv_text([columns, *rows], quoted=True)
