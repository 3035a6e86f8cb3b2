"""Our figures and the papers': published rows of a system, and rankings of a paper's systems."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pipeline.report.published import PublishedRow, published_for, published_rows
from pipeline.retrieval.recall import CUTOFFS, DIRECTIONS
from pipeline.retrieval.tables import HEADINGS

COLUMNS = (
    *(f"{d}_{m}" for d in DIRECTIONS for m in ("r1", "r5", "r10", "median_rank")),
    "rsum",
)
"""Figures that both our tables and the papers' may have."""

CONDITIONS = ("image features", "image weights", "text features", "split and gallery", "remark")
"""Conditions of a system's figures, in a paper's own words."""

_RECALLS = tuple(f"{d}_r{k}" for d in DIRECTIONS for k in CUTOFFS)


@dataclass(frozen=True)
class System:
    """One system's figures, ours or a paper's.

    Attributes
    ----------
    heading : str. Source of the figures.
    conditions : tuple of str. A text for each of `CONDITIONS`, "" where it is unknown.
    values : tuple of str. A text for each of `COLUMNS`, a paper's as printed, "" where there is
        none.
    """

    heading: str
    conditions: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """An experiment and what the papers have of its system.

    Attributes
    ----------
    systems : tuple of System. Ours, then each published row on the same dataset, in the printed
        order; () if there is none.
    elsewhere : tuple of str. The datasets that the papers have it on, if they have it on others
        alone.
    """

    systems: tuple[System, ...]
    elsewhere: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Conditions, then figures: a name, and a text for each system; not where all are empty."""
        conditions = zip(*(system.conditions for system in self.systems), strict=True)
        values = zip(*(system.values for system in self.systems), strict=True)
        named = [*zip(CONDITIONS, conditions, strict=False), *zip(COLUMNS, values, strict=False)]
        return [(name, list(texts)) for name, texts in named if any(texts)]


@dataclass(frozen=True)
class PublishedRanking:
    """What a paper prints of some systems on one dataset, over one kind of image features.

    Attributes
    ----------
    heading : str. Dataset, table and image features.
    figures : mapping of str to float. Experiment to the measure of `Ranking`.
    pairs : int. Number of pairs of systems with different figures.
    agreeing : int. How many of these are in our order, too.
    """

    heading: str
    figures: Mapping[str, float]
    agreeing: int
    pairs: int

    @property
    def places(self) -> dict[str, int]:
        """Experiment to its place, from 1; equal figures share one."""
        return _places(self.figures)


@dataclass(frozen=True)
class Ranking:
    """The experiments of one paper, best first.

    Attributes
    ----------
    measure : str. What they are ordered by: the sum of those R@K that the paper prints of all of
        them.
    figures : mapping of str to float. Of each experiment, in our order.
    published : tuple of PublishedRanking. At least one.
    """

    paper: str
    measure: str
    figures: Mapping[str, float]
    published: tuple[PublishedRanking, ...]

    @property
    def places(self) -> dict[str, int]:
        """Experiment to its place, from 1; equal figures share one."""
        return _places(self.figures)


def compare(
    experiment: str, dataset: str, recall: Mapping[str, float | int], columns: Mapping[str, str]
) -> Comparison:
    """Return an experiment with its published rows.

    Parameters
    ----------
    experiment, dataset : str. By their names in this project.
    recall : mapping of str to float or int. Its table.
    columns : mapping of str to str. Of `pipeline.report.results.columns_of`.
    """
    here = published_for(experiment, dataset)
    if not here:
        others = (row.dataset for row in published_rows() if row.experiment == experiment)
        return Comparison((), tuple(dict.fromkeys(others)))
    gallery = (
        f"{columns.get('split', 'split unknown')}: {recall['num_images']:g} images, "
        f"{recall['num_captions']:g} captions"
    )
    ours = System(
        f"ours: {experiment}",
        (
            columns.get("image features", ""),
            columns.get("image weights", ""),
            columns.get("caption features", ""),
            gallery,
            "",
        ),
        tuple(f"{recall[column]:.1f}" for column in COLUMNS),
    )
    return Comparison((ours, *map(_printed, here)), ())


def rankings(recalls: Mapping[str, Mapping[str, float | int]], dataset: str) -> tuple[Ranking, ...]:
    """Rank the systems of each paper that has two of ours or more in one table.

    Of several rows of a system over the same image features, as over other text features, the
    first printed one counts. Rankings on the dataset itself are given, or else on all others:
    figures of two datasets do not compare, but rankings may.

    Parameters
    ----------
    recalls : mapping of str to mapping of str to float or int. Experiment to its table, all of one
        protocol.
    dataset : str. That they are on.
    """
    known = [row for row in published_rows() if row.experiment in recalls]
    found = (_ranking(rows, recalls, dataset) for rows in _parted(known, lambda row: row.paper))
    return tuple(ranking for ranking in found if ranking is not None)


def _ranking(
    rows: Sequence[PublishedRow], recalls: Mapping[str, Mapping[str, float | int]], dataset: str
) -> Ranking | None:
    measured = [name for name in _RECALLS if all(name in row.values for row in rows)]
    tables = []
    for part in _parted(rows, lambda row: (row.table, row.dataset, row.image_feature)):
        first: dict[str, PublishedRow] = {}
        for row in part:
            first.setdefault(row.experiment, row)
        if len(first) > 1:
            tables.append(first)
    here = [t for t in tables if all(row.dataset == dataset for row in t.values())]
    tables = here or tables
    if not tables or not measured:
        return None
    names = dict.fromkeys(name for table in tables for name in table)
    ours = {name: sum(float(recalls[name][column]) for column in measured) for name in names}
    ours = dict(sorted(ours.items(), key=lambda figure: -figure[1]))
    return Ranking(
        rows[0].paper,
        "sum of " + ", ".join(HEADINGS[column] for column in measured),
        ours,
        tuple(_published(table, measured, ours) for table in tables),
    )


def _published(
    table: Mapping[str, PublishedRow], measured: Sequence[str], ours: Mapping[str, float]
) -> PublishedRanking:
    row = next(iter(table.values()))
    figures = {n: sum(float(r.values[column]) for column in measured) for n, r in table.items()}
    pairs = [(a, b) for a, b in combinations(table, 2) if figures[a] != figures[b]]
    agreeing = sum((figures[a] - figures[b]) * (ours[a] - ours[b]) > 0 for a, b in pairs)
    heading = ", ".join(filter(None, (row.dataset, f"table {row.table}", row.image_feature)))
    return PublishedRanking(heading, figures, agreeing, len(pairs))


def _places(figures: Mapping[str, float]) -> dict[str, int]:
    return {name: 1 + sum(v > value for v in figures.values()) for name, value in figures.items()}


def _parted(
    rows: Sequence[PublishedRow], key: Callable[[PublishedRow], Hashable]
) -> Iterator[list[PublishedRow]]:
    parts: dict[Hashable, list[PublishedRow]] = {}
    for row in rows:
        parts.setdefault(key(row), []).append(row)
    yield from parts.values()


def _printed(row: PublishedRow) -> System:
    quoted = f", quoting {row.quoted_from}" if row.quoted_from else ""
    return System(
        f"{row.paper}, table {row.table}: {row.system}{quoted}",
        (row.image_feature, "", row.text_feature, row.protocol, row.remark),
        tuple(row.values.get(column, "") for column in COLUMNS),
    )
