"""The figures of a report: for each an SVG chart, its numbers as CSV, and what there is to see."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.canonical import write_text
from pipeline.report.breakdowns import LengthBin
from pipeline.report.svg import COLOURS, Bar, Series, dot_chart, letter_chart, line_chart

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


def curve_of(label: str, history: History) -> Series | None:
    """Return `rsum` by epoch, or None where a head was not trained in epochs or not validated."""
    trained = [one for one in history if "rsum" in one and "loss" in one]
    if len(trained) < 2:
        return None
    best = [float(one["epoch"]) for one in trained if one.get("best")]
    points = tuple((float(one["epoch"]), float(one["rsum"])) for one in trained)
    return Series(label, points, best[-1] if best else None)


def epoch_figure(name: str, curves: Sequence[Series], split: str) -> Figure:
    """Show `rsum` on the validation split against the epoch, the first curves in colour."""
    first = curves[0]
    alt = f"rsum on {split or 'the validation split'} against the epoch. {first.label} goes from "
    alt += f"{first.points[0][1]:.1f} after epoch {first.points[0][0]:g} to "
    alt += f"{first.points[-1][1]:.1f} after epoch {first.points[-1][0]:g}."
    rows = [[one.label, x, y, int(x == one.marked)] for one in curves for x, y in one.points]
    return Figure(
        name,
        "rsum against the epoch",
        f"On {split or 'the validation split'}, while training. The large mark is the epoch that "
        "was kept.",
        alt,
        line_chart(curves[:COLOURS], curves[COLOURS:], "epoch", "rsum", alt),
        _csv(["experiment", "epoch", "rsum", "kept"], rows),
    )


def places_figure(
    name: str,
    places: Mapping[str, Sequence[tuple[float, float]]],
    shares: tuple[float, float],
    captions: Mapping[str, str],
) -> Figure:
    """Show where the sentences of some images lie, a letter an image.

    Parameters
    ----------
    places, shares : see `pipeline.report.queries.Retrieval`.
    captions : image id to the sentence that names it in the legend.
    """
    alt = f"The sentences of {len(places)} images in the plane of their first two principal "
    alt += "components, as letters, one an image. The closer equal letters are, the better the "
    alt += "space knows that they speak of one picture."
    axes = [f"component {k}, {100 * share:.0f} % of the variance" for k, share in (
        (1, shares[0]), (2, shares[1])
    )]  # fmt: skip
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
        letter_chart(named, axes[0], axes[1], alt),
        _csv(["image", "component_1", "component_2"], rows),
    )


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
