"""What a report's pages show of experiments: those that compare, together, and each on its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.analysis.breakdowns import LengthBin, WordRow, by_length, by_word
from pipeline.report.analysis.comparison import COLUMNS, Comparison, compare
from pipeline.report.analysis.rankings import Order, orders
from pipeline.report.analysis.seeds import Executor, folded, spreads, system_of
from pipeline.report.data.provenance import dataset_of
from pipeline.report.data.results import Case
from pipeline.report.drawing.charts import Bar
from pipeline.report.drawing.figures import (
    Figure,
    curve_of,
    distances_figure,
    epoch_figure,
    length_figure,
    places_figure,
    rsum_figure,
    words_figure,
)
from pipeline.retrieval.recall import DIRECTIONS
from pipeline.retrieval.tables import HEADINGS


@dataclass(frozen=True)
class Breakdown:
    """An experiment's sentences by length and by word."""

    lengths: tuple[LengthBin, ...]
    words: tuple[WordRow, ...]
    least: int
    """Sentences that a word of `words` occurs in, or more."""


@dataclass(frozen=True)
class Group:
    """Experiments whose figures compare: the same split, protocol and gallery."""

    title: str
    protocol: str
    cases: tuple[Case, ...]
    runs: Mapping[str, tuple[Case, ...]]
    """The experiments that tables and figures show, each with its runs from all seeds."""
    spreads: Mapping[str, Mapping[str, Executor]]
    """Of those with several runs."""
    figures: tuple[Figure, ...]
    comparisons: Mapping[str, Comparison]
    orders: tuple[Order, ...]
    best: Mapping[str, float]

    @property
    def shown(self) -> tuple[Case, ...]:
        """The first run of each experiment."""
        return tuple(runs[0] for runs in self.runs.values())


def grouped(cases: Sequence[Case]) -> list[tuple[Case, ...]]:
    """Part experiments into those whose figures compare, in their order."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        key = (
            case.columns.get("split"),
            case.columns.get("protocol"),
            *(case.recall[name] for name in ("num_images", "num_captions", "captions_per_image")),
        )
        groups.setdefault(key, []).append(case)
    return [tuple(group) for group in groups.values()]


def breakdown_of(case: Case) -> Breakdown | None:
    """Return None where ranks or sentences are not there."""
    if case.retrieval is None or case.dataset is None:
        return None
    ranks = case.retrieval.caption_ranks
    texts = [case.dataset.texts[one] for one in case.retrieval.caption_ids]
    least = max(10, len(texts) // 100)
    return Breakdown(by_length(texts, ranks, 2 * least), by_word(texts, ranks, least), least)


def group_of(number: int, cases: tuple[Case, ...], breakdowns: Mapping[str, Breakdown]) -> Group:
    """Put experiments that compare side by side; the number tells the figures of groups apart."""
    named = {case.name: case for case in cases}
    runs = {name: tuple(named[one] for one in of) for name, of in folded(named).items()}
    shown = [of[0] for of in runs.values()]
    first = cases[0]
    gallery = (
        f"{first.recall['num_images']:g} images, {first.recall['num_captions']:g} captions, "
        f"at most {first.recall['captions_per_image']:g} of an image"
    )
    dataset = dataset_of(first.facts)
    return Group(
        f"{first.columns.get('split', 'Of unknown origin')}: {gallery}",
        first.columns.get("protocol", ""),
        cases,
        runs,
        {n: spreads([c.recall for c in of], COLUMNS) for n, of in runs.items() if len(of) > 1},
        tuple(_joint_figures(number, shown, breakdowns)),
        {c.name: compare(system_of(c.name), dataset, c.recall, c.columns) for c in cases},
        orders({case.name: case.recall for case in shown}, dataset),
        {
            column: (min if "rank" in column else max)(float(c.recall[column]) for c in shown)
            for column in COLUMNS
        },
    )


def _joint_figures(
    number: int, cases: Sequence[Case], breakdowns: Mapping[str, Breakdown]
) -> Iterator[Figure]:
    by_rsum = sorted(cases, key=lambda case: -float(case.recall["rsum"]))
    bars = [Bar(c.name, float(c.recall["rsum"]), *(c.rsum_interval or ())) for c in by_rsum]
    yield rsum_figure(f"rsum-{number}", bars)
    lengths = {c.name: breakdowns[c.name].lengths for c in by_rsum if c.name in breakdowns}
    if lengths:
        yield length_figure(f"r10-by-length-{number}", lengths)
    epochs = [case for case in by_rsum if curve_of(case.name, case.history, "rsum")]
    for column in ("rsum", *(f"{d}_{_r_k(cases)}" for d in DIRECTIONS)):
        curves = [curve for c in epochs if (curve := curve_of(c.name, c.history, column))]
        if curves:
            name = f"{column.replace('_', '-')}-by-epoch-{number}"
            heading, missing = HEADINGS.get(column, column), len(epochs) - len(curves)
            yield epoch_figure(name, heading, curves, _chosen_on(cases), missing)
    close = [(c.name, c.input_closeness, c.retrieval.closeness) for c in by_rsum if c.retrieval]
    measured = [(name, before, after) for name, before, after in close if after]
    if measured:
        yield distances_figure(f"distances-{number}", measured)


def own_figures(
    case: Case, breakdown: Breakdown | None, picture: Callable[[str], bytes]
) -> Iterator[Figure]:
    """Give the figures of one experiment; `picture` gives the small JPEG of an image id."""
    if breakdown is not None:
        yield length_figure(f"{case.name}-r10-by-length", {case.name: breakdown.lengths})
    if curve := curve_of(case.name, case.history, "rsum"):
        yield epoch_figure(f"{case.name}-rsum-by-epoch", "rsum", [curve], _chosen_on([case]))
    measure = _r_k([case])
    columns = {f"{d}_{measure}": "an image looks for its sentences" if d == DIRECTIONS[0]
               else "a sentence looks for its image"
               for d in DIRECTIONS}  # fmt: skip
    curves = [one for c, label in columns.items() if (one := curve_of(label, case.history, c))]
    if curves:
        heading = measure.upper().replace("R", "R@")
        name = f"{case.name}-{measure}-by-epoch"
        yield epoch_figure(name, heading, curves, _chosen_on([case]))
    found, dataset = case.retrieval, case.dataset
    if found is None or dataset is None:
        return
    if found.places:
        name = f"{case.name}-sentences"
        yield places_figure(name, found.places, found.shares, dataset.captions)
    if case.word_plane is not None:
        name = f"{case.name}-words"
        yield words_figure(name, case.word_plane, dataset.captions, picture)


def _r_k(cases: Sequence[Case]) -> str:
    """Return "r10", or "r1" where no history is young enough to have that."""
    column = f"{DIRECTIONS[0]}_r10"
    return "r10" if any(column in entry for c in cases for entry in c.history) else "r1"


def _chosen_on(cases: Sequence[Case]) -> str:
    splits = {case.lineage["chosen on"] for case in cases} - {""}
    return splits.pop() if len(splits) == 1 else ""
