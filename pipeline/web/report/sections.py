"""Contents of a report's pages: sections of comparable experiments, and single experiments."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean, stdev
from typing import Any

from pipeline.retrieval.measures import COLUMNS, COUNTS, DIRECTIONS, REPORT_COLUMNS
from pipeline.retrieval.ranking.small_galleries import warning_of
from pipeline.retrieval.tables import SEEN_SIGN
from pipeline.web.report.charts import Bar
from pipeline.web.report.figures import (
    Figure,
    curve_of,
    distances_figure,
    epoch_figure,
    length_figure,
    places_figure,
    rsum_figure,
    words_figure,
)
from pipeline.web.report.rankings import Comparison, Ranking, compare, rankings
from pipeline.web.report.results import Dataset, Result, dataset_of
from pipeline.web.report.retrievals import LengthBin, WordRow, by_length, by_word
from pipeline.web.report.verdict import Verdict, verdict_of

_RUN = re.compile(r"(.+)-seed[0-9]+")


@dataclass(frozen=True)
class Breakdown:
    """Recall of an experiment's sentences by length and by word."""

    lengths: tuple[LengthBin, ...]
    words: tuple[WordRow, ...]  # recall of words in at least `least` sentences, highest R@10 first
    least: int  # minimum number of sentences of a word
    r10: float  # R@10 of all sentences in per cent

    @property
    def easy(self) -> tuple[WordRow, ...]:
        """Words whose sentences have a higher R@10 than all sentences, best first."""
        return tuple(row for row in self.words if row.r10 > self.r10)

    @property
    def hard(self) -> tuple[WordRow, ...]:
        """Words whose sentences have a lower R@10 than all sentences, worst first."""
        return tuple(row for row in reversed(self.words) if row.r10 < self.r10)


@dataclass(frozen=True)
class Spread:
    """Spread of a figure over several runs."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Section:
    """Experiments with comparable figures: same split, protocol and gallery."""

    title: str
    protocol: str
    results: tuple[Result, ...]  # all runs of the experiments
    runs: Mapping[str, tuple[Result, ...]]
    """Runs of each experiment over all seeds, highest `rsum` first; the first one is shown."""
    spreads: Mapping[str, Mapping[str, Spread]]
    """Spread over seeds, for experiments with several runs."""
    numbers: Mapping[str, int]
    """Number of each system in the report, which selects colour and marker."""
    figures: tuple[Figure, ...]
    comparisons: Mapping[str, Comparison]  # published rows by experiment
    rankings: tuple[Ranking, ...]  # our order of a paper's systems next to the published one
    best: Mapping[str, float]
    verdict: Verdict

    def sign_of(self, name: str) -> str:
        """Return the mark of an experiment whose encoders have seen the data, or ""."""
        (signed,) = (_signed(result) for result in self.results if result.name == name)
        return signed.removeprefix(name)

    @property
    def seen(self) -> dict[str, str]:
        """Part of the dataset that the encoders were trained on, by experiment."""
        return {result.name: result.seen for result in self.shown if result.seen}

    @property
    def warning(self) -> str:
        """Warning about a small number of images; "" for large galleries."""
        return warning_of([result.recall for result in self.results])

    @property
    def shown(self) -> tuple[Result, ...]:
        """The first run of each experiment."""
        return tuple(runs[0] for runs in self.runs.values())


def comparable(results: Sequence[Result]) -> list[tuple[Result, ...]]:
    """Group experiments by comparable figures, in their order."""
    parts: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        key = (
            result.columns.get("split"),
            result.columns.get("protocol"),
            *(result.recall[name] for name in COUNTS),
        )
        parts.setdefault(key, []).append(result)
    return [tuple(part) for part in parts.values()]


def numbered(parts: Sequence[Sequence[Result]]) -> dict[str, int]:
    """Return the number of each system of a report: by `rsum`, one section after the other."""
    names = [system_of(result.name) for part in parts for result in _by_rsum(part)]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def breakdown_of(result: Result) -> Breakdown | None:
    """Return recall by length and by word; None without ranks or sentences."""
    if result.retrieval is None or result.dataset is None:
        return None
    ranks = result.retrieval.caption_ranks
    texts = [result.dataset.texts[caption] for caption in result.retrieval.caption_ids]
    least = max(10, len(texts) // 100)
    return Breakdown(
        by_length(texts, ranks, 2 * least),
        by_word(texts, ranks, least),
        least,
        float(result.recall[f"{DIRECTIONS[1]}_r10"]),
    )


def section_of(
    number: int,
    results: tuple[Result, ...],
    breakdowns: Mapping[str, Breakdown],
    numbers: Mapping[str, int],
) -> Section:
    """Return the section of some comparable experiments."""
    named = {result.name: result for result in _by_rsum(results)}
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
        {
            n: spreads([r.recall for r in of], REPORT_COLUMNS)
            for n, of in runs.items()
            if len(of) > 1
        },
        numbers,
        tuple(_joint_figures(number, shown, breakdowns, numbers)),
        {r.name: compare(system_of(r.name), dataset, r.recall, r.columns) for r in results},
        rankings({result.name: result.recall for result in shown}, dataset),
        {
            name: (min if COLUMNS[name].lower_is_better else max)(
                float(r.recall[name]) for r in fair
            )
            for name in REPORT_COLUMNS
        },
        verdict_of(shown),
    )


def own_figures(
    result: Result,
    breakdown: Breakdown | None,
    number: int,
    thumbnail: Callable[[Dataset, str], bytes],
) -> Iterator[Figure]:
    """Yield the figures of a single experiment."""
    if breakdown is not None and len(breakdown.lengths) > 1:
        lengths = {result.name: breakdown.lengths}
        yield length_figure(f"{result.name}-r10-by-length", lengths, {result.name: number})
    if curve := curve_of(result.name, result.history, "rsum", number):
        yield epoch_figure(f"{result.name}-rsum-by-epoch", "rsum", [curve], _chosen_on([result]))
    measure = _r_k(result)
    labels = ("an image searches for its sentences", "a sentence searches for its image")
    curves = [
        curve
        for direction, label in zip(DIRECTIONS, labels, strict=True)
        if (
            curve := curve_of(
                label, result.history, f"{direction}_{measure}", number, direction == DIRECTIONS[0]
            )
        )
    ]
    if curves:
        heading = measure.upper().replace("R", "R@")
        name = f"{result.name}-{measure}-by-epoch"
        yield epoch_figure(name, heading, curves, _chosen_on([result]))
    retrieval, dataset = result.retrieval, result.dataset
    if retrieval is None or dataset is None:
        return
    for before, sentences in ((True, result.input_plane), (False, retrieval.plane)):
        if sentences is not None and sentences.places:
            name = f"{result.name}-sentences" + "-before" * before
            captions = _first_captions(dataset, sentences.places)
            yield places_figure(name, sentences, captions, before)
    if result.word_plane is not None:
        name = f"{result.name}-words"
        captions = _first_captions(dataset, chain(*result.word_plane.images.values()))
        yield words_figure(name, result.word_plane, captions, partial(thumbnail, dataset))


def _first_captions(dataset: Dataset, images: Iterable[str]) -> dict[str, str]:
    return {image: dataset.manifest.by_id[image].first_caption for image in images}


def system_of(name: str) -> str:
    """Return the name of an experiment without the suffix of a further seed."""
    run = _RUN.fullmatch(name)
    return run[1] if run else name


def folded(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the runs of each experiment, the first seed first."""
    all_names = list(names)
    runs: dict[str, list[str]] = {}
    for name in all_names:
        system = system_of(name)
        runs.setdefault(system if system in all_names else name, []).append(name)
    return {
        system: sorted(of, key=lambda name: (name != system, name)) for system, of in runs.items()
    }


def spreads(
    recalls: Sequence[Mapping[str, float | int]], columns: Iterable[str]
) -> dict[str, Spread]:
    """Return mean and standard deviation of each column over at least two runs."""
    values = {column: [float(recall[column]) for recall in recalls] for column in columns}
    return {column: Spread(fmean(of), stdev(of)) for column, of in values.items()}


def _by_rsum(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda result: -float(result.recall["rsum"]))


def _joint_figures(
    number: int,
    by_rsum: Sequence[Result],
    breakdowns: Mapping[str, Breakdown],
    numbers: Mapping[str, int],
) -> Iterator[Figure]:
    number_of = {result.name: numbers[system_of(result.name)] for result in by_rsum}
    bars = [
        Bar(_signed(r), float(r.recall["rsum"]), low, high, number_of[r.name])
        for r in by_rsum
        for low, high in [r.rsum_interval or (None, None)]
    ]
    yield rsum_figure(f"rsum-{number}", bars)
    lengths = {r.name: breakdowns[r.name].lengths for r in by_rsum if r.name in breakdowns}
    if any(len(bins) > 1 for bins in lengths.values()):
        yield length_figure(f"r10-by-length-{number}", lengths, number_of)
    curves = [
        curve for r in by_rsum if (curve := curve_of(r.name, r.history, "rsum", number_of[r.name]))
    ]
    if curves:
        yield epoch_figure(f"rsum-by-epoch-{number}", "rsum", curves, _chosen_on(by_rsum))
    close = [(r.name, r.input_closeness, r.retrieval.closeness) for r in by_rsum if r.retrieval]
    measured = [(name, before, after) for name, before, after in close if after]
    if measured:
        yield distances_figure(f"distances-{number}", measured, number_of)


def _signed(result: Result) -> str:
    return f"{result.name} {SEEN_SIGN}" if result.seen else result.name


def _r_k(result: Result) -> str:
    """Return "r10", or "r1" if the history is of a version without "r10"."""
    return "r10" if any(f"{DIRECTIONS[0]}_r10" in entry for entry in result.history) else "r1"


def _chosen_on(results: Sequence[Result]) -> str:
    splits = {result.lineage["chosen on"] for result in results} - {""}
    return splits.pop() if len(splits) == 1 else ""
