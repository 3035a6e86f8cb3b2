"""What a report's pages show of experiments: those that compare, together, and each on its own."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, stdev
from typing import Any

from pipeline.report.charts import Bar
from pipeline.report.figures import (
    Figure,
    curve_of,
    distances_figure,
    epoch_figure,
    length_figure,
    places_figure,
    rsum_figure,
    words_figure,
)
from pipeline.report.rankings import COLUMNS, Comparison, Ranking, compare, rankings
from pipeline.report.results import Dataset, Result, dataset_of
from pipeline.report.retrievals import LengthBin, WordRow, by_length, by_word
from pipeline.report.verdict import Verdict, verdict_of
from pipeline.retrieval.recall import DIRECTIONS
from pipeline.retrieval.significance.small_galleries import warning_of
from pipeline.retrieval.tables import COUNTS, HEADINGS, SEEN_SIGN

_RUN = re.compile(r"(.+)-seed[0-9]+")


@dataclass(frozen=True)
class Breakdown:
    """An experiment's sentences by length and by word."""

    lengths: tuple[LengthBin, ...]
    words: tuple[WordRow, ...]
    least: int
    """Sentences that a word of `words` occurs in, or more."""


@dataclass(frozen=True)
class Spread:
    """A figure over several runs: mean and sample standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Section:
    """Experiments whose figures compare: the same split, protocol and gallery."""

    title: str
    protocol: str
    results: tuple[Result, ...]
    runs: Mapping[str, tuple[Result, ...]]
    """The experiments that tables and figures show, each with its runs from all seeds."""
    spreads: Mapping[str, Mapping[str, Spread]]
    """Of those with several runs."""
    figures: tuple[Figure, ...]
    comparisons: Mapping[str, Comparison]
    rankings: tuple[Ranking, ...]
    best: Mapping[str, float]
    verdict: Verdict

    def sign_of(self, name: str) -> str:
        """Return what stands behind an experiment's name: a sign if its encoders saw the data."""
        (signed,) = (_signed(result) for result in self.results if result.name == name)
        return signed.removeprefix(name)

    @property
    def seen(self) -> dict[str, str]:
        """By experiment, what its encoders have seen of the dataset."""
        return {result.name: result.seen for result in self.shown if result.seen}

    @property
    def warning(self) -> str:
        """What to keep in mind of few images; "" of many."""
        return warning_of([result.recall for result in self.results])

    @property
    def shown(self) -> tuple[Result, ...]:
        """The first run of each experiment."""
        return tuple(runs[0] for runs in self.runs.values())


def comparable(results: Sequence[Result]) -> list[tuple[Result, ...]]:
    """Part experiments into those whose figures compare, in their order."""
    parts: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        key = (
            result.columns.get("split"),
            result.columns.get("protocol"),
            *(result.recall[name] for name in COUNTS),
        )
        parts.setdefault(key, []).append(result)
    return [tuple(part) for part in parts.values()]


def breakdown_of(result: Result) -> Breakdown | None:
    """Break recall down by length and by word; None where ranks or sentences are not there."""
    if result.retrieval is None or result.dataset is None:
        return None
    ranks = result.retrieval.caption_ranks
    texts = [result.dataset.texts[caption] for caption in result.retrieval.caption_ids]
    least = max(10, len(texts) // 100)
    return Breakdown(by_length(texts, ranks, 2 * least), by_word(texts, ranks, least), least)


def section_of(
    number: int, results: tuple[Result, ...], breakdowns: Mapping[str, Breakdown]
) -> Section:
    """Put experiments that compare side by side; the number tells the figures of sections apart."""
    named = {result.name: result for result in results}
    runs = {name: tuple(named[run] for run in of) for name, of in folded(named).items()}
    shown = [of[0] for of in runs.values()]
    fair = [result for result in shown if not result.seen] or shown
    first = results[0]
    images, captions, of_image = (
        int(first.recall[name]) for name in ("num_images", "num_captions", "captions_per_image")
    )
    gallery = f"{images} images, {captions} captions, " + (
        f"{of_image} of each image"
        if captions == of_image * images
        else f"at most {of_image} of an image"
    )
    dataset = dataset_of(first.metadata)
    return Section(
        f"{first.columns.get('split', 'Of unknown origin')}: {gallery}",
        first.columns.get("protocol", ""),
        results,
        runs,
        {n: spreads([r.recall for r in of], COLUMNS) for n, of in runs.items() if len(of) > 1},
        tuple(_joint_figures(number, shown, breakdowns)),
        {r.name: compare(system_of(r.name), dataset, r.recall, r.columns) for r in results},
        rankings({result.name: result.recall for result in shown}, dataset),
        {
            column: (min if "rank" in column else max)(float(r.recall[column]) for r in fair)
            for column in COLUMNS
        },
        verdict_of(shown),
    )


def own_figures(
    result: Result, breakdown: Breakdown | None, picture: Callable[[str], bytes]
) -> Iterator[Figure]:
    """Give the figures of one experiment; `picture` gives the small JPEG of an image id."""
    if breakdown is not None:
        yield length_figure(f"{result.name}-r10-by-length", {result.name: breakdown.lengths})
    if curve := curve_of(result.name, result.history, "rsum"):
        yield epoch_figure(f"{result.name}-rsum-by-epoch", "rsum", [curve], _chosen_on([result]))
    measure = _r_k([result])
    columns = {f"{d}_{measure}": "an image looks for its sentences" if d == DIRECTIONS[0]
               else "a sentence looks for its image"
               for d in DIRECTIONS}  # fmt: skip
    curves = [
        curve for c, label in columns.items() if (curve := curve_of(label, result.history, c))
    ]
    if curves:
        heading = measure.upper().replace("R", "R@")
        name = f"{result.name}-{measure}-by-epoch"
        yield epoch_figure(name, heading, curves, _chosen_on([result]))
    retrieval, dataset = result.retrieval, result.dataset
    if retrieval is None or dataset is None:
        return
    if retrieval.places:
        name = f"{result.name}-sentences"
        captions = _first_captions(dataset, retrieval.places)
        yield places_figure(name, retrieval.places, retrieval.shares, captions)
    if result.word_plane is not None:
        name = f"{result.name}-words"
        captions = _first_captions(dataset, chain(*result.word_plane.images.values()))
        yield words_figure(name, result.word_plane, captions, picture)


def _first_captions(dataset: Dataset, images: Iterable[str]) -> dict[str, str]:
    return {image: dataset.manifest.by_id[image].first_caption for image in images}


def system_of(name: str) -> str:
    """Return the experiment that a run from another seed is of, or the name itself."""
    run = _RUN.fullmatch(name)
    return run[1] if run else name


def folded(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the runs of each experiment, itself first.

    A run whose experiment is not there stands for itself.
    """
    given = list(names)
    runs: dict[str, list[str]] = {}
    for name in given:
        system = system_of(name)
        runs.setdefault(system if system in given else name, []).append(name)
    return {
        system: sorted(of, key=lambda name: (name != system, name)) for system, of in runs.items()
    }


def spreads(
    recalls: Sequence[Mapping[str, float | int]], columns: Iterable[str]
) -> dict[str, Spread]:
    """Return mean and deviation of each column over two runs or more."""
    values = {column: [float(recall[column]) for recall in recalls] for column in columns}
    return {column: Spread(fmean(of), stdev(of)) for column, of in values.items()}


def _joint_figures(
    number: int, results: Sequence[Result], breakdowns: Mapping[str, Breakdown]
) -> Iterator[Figure]:
    by_rsum = sorted(results, key=lambda result: -float(result.recall["rsum"]))
    bars = [Bar(_signed(r), float(r.recall["rsum"]), *(r.rsum_interval or ())) for r in by_rsum]
    yield rsum_figure(f"rsum-{number}", bars)
    lengths = {r.name: breakdowns[r.name].lengths for r in by_rsum if r.name in breakdowns}
    if lengths:
        yield length_figure(f"r10-by-length-{number}", lengths)
    epochs = [result for result in by_rsum if curve_of(result.name, result.history, "rsum")]
    for column in ("rsum", *(f"{d}_{_r_k(results)}" for d in DIRECTIONS)):
        curves = [curve for r in epochs if (curve := curve_of(r.name, r.history, column))]
        if curves:
            name = f"{column.replace('_', '-')}-by-epoch-{number}"
            heading, missing = HEADINGS.get(column, column), len(epochs) - len(curves)
            yield epoch_figure(name, heading, curves, _chosen_on(results), missing)
    close = [(r.name, r.input_closeness, r.retrieval.closeness) for r in by_rsum if r.retrieval]
    measured = [(name, before, after) for name, before, after in close if after]
    if measured:
        yield distances_figure(f"distances-{number}", measured)


def _signed(result: Result) -> str:
    return f"{result.name} {SEEN_SIGN}" if result.seen else result.name


def _r_k(results: Sequence[Result]) -> str:
    """Return "r10", or "r1" where no history is young enough to have that."""
    column = f"{DIRECTIONS[0]}_r10"
    return "r10" if any(column in entry for r in results for entry in r.history) else "r1"


def _chosen_on(results: Sequence[Result]) -> str:
    splits = {result.lineage["chosen on"] for result in results} - {""}
    return splits.pop() if len(splits) == 1 else ""
