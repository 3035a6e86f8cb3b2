"""Comparison with the papers: published rows of a system, and rankings of a paper's systems."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pipeline.retrieval.recall import CUTOFFS, DIRECTIONS
from pipeline.retrieval.tables import HEADINGS
from pipeline.web.report.published import PublishedRow, published_for, published_rows

COLUMNS = (
    *(f"{d}_{m}" for d in DIRECTIONS for m in ("r1", "r5", "r10", "median_rank")),
    "rsum",
)
"""Figures that both our tables and the papers may have."""

CONDITIONS = ("image features", "image weights", "text features", "split and gallery", "remark")
"""Conditions of a system's figures, in the words of the paper."""

_RECALLS = tuple(f"{d}_r{k}" for d in DIRECTIONS for k in CUTOFFS)


@dataclass(frozen=True)
class System:
    """Figures of one system, ours or a paper's.

    Attributes
    ----------
    heading : str. Source of the figures.
    conditions : tuple of str. Value of each of `CONDITIONS`; "" if unknown.
    values : tuple of str. Value of each of `COLUMNS`, as printed for a paper; "" if missing.
    """

    heading: str
    conditions: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """An experiment with the published figures of its system.

    Attributes
    ----------
    systems : tuple of System. Ours, then each published row on the same dataset in printed order;
        () without published rows.
    elsewhere : tuple of str. Datasets with published figures, if there are none on this dataset.
    """

    systems: tuple[System, ...]
    elsewhere: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Rows of conditions and figures: a name, and a value per system; none is empty."""
        conditions = zip(*(system.conditions for system in self.systems), strict=True)
        values = zip(*(system.values for system in self.systems), strict=True)
        named = [*zip(CONDITIONS, conditions, strict=False), *zip(COLUMNS, values, strict=False)]
        return [(name, list(texts)) for name, texts in named if any(texts)]


@dataclass(frozen=True)
class PublishedRanking:
    """Published figures of some systems on one dataset, with one kind of image features.

    Attributes
    ----------
    heading : str. Dataset, table and image features.
    figures : mapping of str to float. Value of the measure of `Ranking` by experiment.
    pairs : int. Number of pairs of systems with different figures.
    agreeing : int. Number of these pairs with the same order as ours.
    """

    heading: str
    figures: Mapping[str, float]
    agreeing: int
    pairs: int

    @property
    def places(self) -> dict[str, int]:
        """Rank of each experiment, from 1; equal figures share a rank."""
        return _places(self.figures)


@dataclass(frozen=True)
class Ranking:
    """The experiments of one paper, best first.

    Attributes
    ----------
    paper : str. The paper.
    measure : str. Measure of the order: the sum of the R@K that the paper prints for all of them.
    figures : mapping of str to float. Value by experiment, in our order.
    published : tuple of PublishedRanking. At least one published ranking.
    """

    paper: str
    measure: str
    figures: Mapping[str, float]
    published: tuple[PublishedRanking, ...]

    @property
    def places(self) -> dict[str, int]:
        """Rank of each experiment, from 1; equal figures share a rank."""
        return _places(self.figures)


def compare(
    experiment: str, dataset: str, recall: Mapping[str, float | int], columns: Mapping[str, str]
) -> Comparison:
    """Return an experiment with its published rows.

    Parameters
    ----------
    experiment, dataset : str. Names in this project.
    recall : mapping of str to float or int. Recall table of the experiment.
    columns : mapping of str to str. See `pipeline.web.report.results.columns_of`.
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
    """Rank the systems of each paper with at least two of our experiments in one table.

    Of several rows of a system with the same image features, such as other text features, the first
    printed one counts. Published rankings are those on the dataset, or if there are none, those on
    other datasets: figures of different datasets are not comparable, but rankings may be.

    Parameters
    ----------
    recalls : mapping of str to mapping of str to float or int. Recall table by experiment, all of
        one protocol.
    dataset : str. Dataset of the tables.
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
