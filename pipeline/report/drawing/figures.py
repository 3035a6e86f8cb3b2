"""The figures of a report: for each an SVG chart, its numbers as CSV, and what there is to see."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.files import write_text
from pipeline.report.analysis.breakdowns import LengthBin
from pipeline.report.analysis.head_inspection import WordPlane
from pipeline.report.drawing.charts import Bar, Series, Spans, dot_chart, line_chart, span_chart
from pipeline.report.drawing.planes import letter_chart, picture_chart
from pipeline.report.drawing.svg import COLOURS
from pipeline.retrieval.geometry import Closeness

History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A chart on its way to a page.

    Attributes
    ----------
    name : of its files, without suffix.
    title, note : heading, and what to know when reading it.
    alt : what there is to see, in words and numbers.
    svg, csv : the contents of its two files.
    """

    name: str
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
    """Show the experiments' `rsum`, greatest first, with intervals where there are any."""
    ordered = sorted(bars, key=lambda bar: -bar.value)
    best, last = ordered[0], ordered[-1]
    alt = f"rsum of {len(bars)} experiments. {best.label} has {best.value:.1f}"
    alt += f", the greatest; {last.label} has {last.value:.1f}, the least." if bars[1:] else "."
    rows = [[b.label, b.value, _or_empty(b.low), _or_empty(b.high)] for b in ordered]
    return Figure(
        name,
        "rsum by experiment",
        "Sum of the six R@K, 0–600. Lines are 95 % bootstrap intervals over images: how far a "
        "figure would move with other images of the same kind.",
        alt,
        dot_chart(ordered, "rsum", alt),
        _csv(["experiment", "rsum", "rsum_low", "rsum_high"], rows),
    )


def length_figure(name: str, lengths: Mapping[str, Sequence[LengthBin]]) -> Figure:
    """Show R@10 of sentences against their number of words, the first experiments in colour."""
    lines = [
        Series(label, tuple((one.words, one.r10) for one in bins))
        for label, bins in lengths.items()
    ]
    rows = [
        [label, one.first, one.last, one.words, one.queries, one.r10, one.median_rank]
        for label, bins in lengths.items()
        for one in bins
    ]
    first, bins = next(iter(lengths.items()))
    alt = f"R@10 of sentences that look for their image, against their number of words. {first}: "
    alt += "; ".join(f"{one.label} words {one.r10:.1f} %" for one in bins) + "."
    columns = ["experiment", "words_from", "words_to", "words", "queries", "text_to_image_r10"]
    return Figure(
        name,
        "R@10 against the length of the sentence",
        "A sentence looks for its image. Each point is a run of lengths with enough sentences, at "
        "their mean number of words.",
        alt,
        line_chart(lines[:COLOURS], lines[COLOURS:], "words", "t→i R@10, per cent", alt),
        _csv([*columns, "median_rank"], rows),
    )


def curve_of(label: str, history: History, column: str) -> Series | None:
    """Return a column by epoch; None where a head has no epochs, or too old a history for it."""
    trained = [one for one in history if column in one and "loss" in one]
    if len(trained) < 2:
        return None
    best = [float(one["epoch"]) for one in trained if one.get("best")]
    points = tuple((float(one["epoch"]), float(one[column])) for one in trained)
    return Series(label, points, best[-1] if best else None)


def epoch_figure(
    name: str, measure: str, curves: Sequence[Series], split: str, missing: int = 0
) -> Figure:
    """Show a measure on the validation split against the epoch, the first curves in colour.

    Parameters
    ----------
    measure : what it is called, such as "rsum" or "R@10".
    split : such as "flickr8k/val", or "".
    missing : trained heads whose histories, of an earlier version, have no such measure.
    """
    first = curves[0]
    alt = f"{measure} on {split or 'the validation split'} against the epoch. {first.label} goes "
    alt += f"from {first.points[0][1]:.1f} after epoch {first.points[0][0]:g} to "
    alt += f"{first.points[-1][1]:.1f} after epoch {first.points[-1][0]:g}."
    rows = [[one.label, x, y, int(x == one.marked)] for one in curves for x, y in one.points]
    axis = measure if measure == "rsum" else f"{measure}, per cent"
    older = f" Not drawn: {missing} heads whose older histories lack it." if missing else ""
    return Figure(
        name,
        f"{measure} against the epoch",
        f"On {split or 'the validation split'}, while training. The large mark is the epoch that "
        f"was kept.{older}",
        alt,
        line_chart(curves[:COLOURS], curves[COLOURS:], "epoch", axis, alt),
        _csv(["curve", "epoch", measure, "kept"], rows),
    )


def words_figure(
    name: str,
    plane: WordPlane,
    captions: Mapping[str, str],
    picture: Callable[[str], bytes],
) -> Figure:
    """Show single words among images whose sentences have them.

    Parameters
    ----------
    captions : image id to what to call it.
    picture : gives the JPEG of an image id, b"" if there is none.
    """
    images = [(word, one, place) for word, of in plane.images.items() for one, place in of.items()]
    alt = f"The words {', '.join(plane.words)} and {len(images)} images whose sentences have them, "
    alt += "in the plane of their first two principal components. Where the space has learnt a "
    alt += "word, its images lie in the same direction from the centre as the word does."
    axes = _share_axes(plane.shares)
    rows = [[word, "", *place] for word, place in plane.words.items()]
    rows += [[word, one, *place] for word, one, place in images]
    return Figure(
        name,
        "Single words among images",
        "Each word is embedded as a sentence of its own. Words are those on which the sentences of "
        "an image agree most; images are those most of whose sentences have the word. Words lie "
        "around the mean of words, images around the mean of images.",
        alt,
        picture_chart(
            plane.words,
            [(captions.get(one) or one, picture(one), place) for _, one, place in images],
            *axes,
            alt,
        ),
        _csv(["word", "image", "component_1", "component_2"], rows),
    )


def distances_figure(name: str, rows: Sequence[tuple[str, Closeness | str, Closeness]]) -> Figure:
    """Show the mean distance of two sentences of one image and of two, before a head and after.

    Parameters
    ----------
    rows : an experiment, what its features have (or why they have none), and its embeddings.
    """
    apart = [(e, b if isinstance(b, str) else _distances(b), _distances(a)) for e, b, a in rows]
    first = apart[0]
    alt = f"Cosine distances of sentences in {len(rows)} experiments, before and after the head. "
    alt += f"After that of {first[0]}, {first[2][0]:.2f} within an image and {first[2][1]:.2f} "
    alt += "between images."
    return Figure(
        name,
        "Distances of sentences, before and after the head",
        "Mean cosine distance (1 − cosine, 0–2) of two sentences. A long line that starts far left "
        "tells images apart.",
        alt,
        span_chart(
            [Spans(e, b, a) for e, b, a in apart],
            ("before the head: the features that went in", "after it: the embeddings"),
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
    name: str,
    places: Mapping[str, Sequence[tuple[float, float]]],
    shares: tuple[float, float],
    captions: Mapping[str, str],
) -> Figure:
    """Show where the sentences of some images lie, a letter an image.

    Parameters
    ----------
    places, shares : see `pipeline.report.analysis.retrievals.Retrieval`.
    captions : image id to the sentence that names it in the legend.
    """
    alt = f"The sentences of {len(places)} images in the plane of their first two principal "
    alt += "components, as letters, one an image. The closer equal letters are, the better the "
    alt += "space knows that they speak of one picture."
    axes = _share_axes(shares)
    # An image without another name keeps its id, so that no two groups become one.
    named = {captions.get(one) or one: points for one, points in places.items()}
    if len(named) < len(places):
        named = {f"{one}: {captions.get(one, '')}": points for one, points in places.items()}
    rows = [[one, x, y] for one, points in places.items() for x, y in points]
    return Figure(
        name,
        "Where the sentences of some images lie",
        f"Principal components of the embeddings of the sentences shown, those of {len(places)} "
        "images drawn by the seed. A letter is a sentence; the legend has the first of each image.",
        alt,
        letter_chart(named, *axes, alt),
        _csv(["image", "component_1", "component_2"], rows),
    )


def _share_axes(shares: tuple[float, float]) -> tuple[str, str]:
    one, two = (f"component {k}, {100 * s:.0f} % of the variance" for k, s in enumerate(shares, 1))
    return one, two


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
