"""Comparison with the papers: published rows of a system, and rankings of a paper's systems."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pipeline.retrieval.measures import COLUMNS, IN_RSUM, REPORT_COLUMNS
from pipeline.web.report.published import PublishedRow, published_for, published_rows

CONDITIONS = ("image features", "image weights", "text features", "split and gallery", "remark")
"""Conditions of a system's figures, in the words of the paper."""


@dataclass(frozen=True)
class System:
    """Figures of one system, ours or a paper's."""

    heading: str
    conditions: tuple[str, ...]  # value of each of `CONDITIONS`; "" if unknown
    values: tuple[str, ...]  # of `REPORT_COLUMNS`, as printed for a paper; "" if missing


@dataclass(frozen=True)
class Comparison:
    """An experiment with the published figures of its system."""

    systems: tuple[System, ...]
    """Ours, then each published row of the dataset in printed order; () without one."""
    elsewhere: tuple[str, ...]  # datasets with published figures, if there are none on this dataset

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Rows of conditions and figures: a name, and a value per system; none is empty."""
        conditions = zip(*(system.conditions for system in self.systems), strict=True)
        values = zip(*(system.values for system in self.systems), strict=True)
        names = (*CONDITIONS, *REPORT_COLUMNS)
        named = zip(names, (*conditions, *values), strict=False)
        return [(name, list(texts)) for name, texts in named if any(texts)]


@dataclass(frozen=True)
class PublishedRanking:
    """Published figures of some systems on one dataset, with one kind of image features."""

    heading: str  # dataset, table and image features
    figures: Mapping[str, float]  # value of the measure of `Ranking` by experiment
    agreeing: int  # number of these pairs with the same order as ours
    pairs: int  # number of pairs of systems with different figures

    @property
    def places(self) -> dict[str, int]:
        """Rank of each experiment, from 1; equal figures share a rank."""
        return _places(self.figures)


@dataclass(frozen=True)
class Ranking:
    """The experiments of one paper, best first."""

    paper: str
    measure: str  # measure of the order: the sum of the R@K that the paper prints for all of them
    figures: Mapping[str, float]  # value by experiment, in our order
    published: tuple[PublishedRanking, ...]

    @property
    def places(self) -> dict[str, int]:
        """Rank of each experiment, from 1; equal figures share a rank."""
        return _places(self.figures)


def compare(
    experiment: str, dataset: str, recall: Mapping[str, float | int], columns: Mapping[str, str]
) -> Comparison:
    """Return an experiment with its published rows."""
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
        tuple(COLUMNS[column].text(recall[column]) for column in REPORT_COLUMNS),
    )
    return Comparison((ours, *map(_printed, here)), ())


def rankings(recalls: Mapping[str, Mapping[str, float | int]], dataset: str) -> tuple[Ranking, ...]:
    """Rank the systems of each paper with at least two of our experiments in one table."""
    rows = [row for row in published_rows() if row.experiment in recalls]
    papers = _parted(rows, lambda row: row.paper)
    return tuple(filter(None, (_ranking(of_paper, recalls, dataset) for of_paper in papers)))


def _ranking(
    rows: Sequence[PublishedRow], recalls: Mapping[str, Mapping[str, float | int]], dataset: str
) -> Ranking | None:
    measured = [name for name in IN_RSUM if all(name in row.values for row in rows)]
    tables = []
    for part in _parted(rows, lambda row: (row.table, row.dataset, row.image_feature)):
        first: dict[str, PublishedRow] = {}
        for row in part:
            first.setdefault(row.experiment, row)
        if len(first) > 1:
            tables.append(first)
    # Figures of other datasets are not comparable, but rankings may be.
    here = [t for t in tables if all(row.dataset == dataset for row in t.values())]
    tables = here or tables
    if not tables or not measured:
        return None
    names = dict.fromkeys(name for table in tables for name in table)
    ours = {name: sum(float(recalls[name][column]) for column in measured) for name in names}
    ours = dict(sorted(ours.items(), key=lambda figure: -figure[1]))
    return Ranking(
        rows[0].paper,
        "sum of " + ", ".join(COLUMNS[column].title for column in measured),
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
        tuple(row.values.get(column, "") for column in REPORT_COLUMNS),
    )
