"""The systems of a paper in the order of our figures, beside the orders that it prints."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pipeline.report.data.published import PublishedRow, published_rows
from pipeline.retrieval.recall import CUTOFFS, DIRECTIONS
from pipeline.retrieval.tables import HEADINGS

_RECALLS = tuple(f"{d}_r{k}" for d in DIRECTIONS for k in CUTOFFS)


@dataclass(frozen=True)
class PublishedOrder:
    """What a paper prints of some systems on one dataset, over one kind of image features.

    Attributes
    ----------
    heading : dataset, table and image features.
    figures : experiment to the measure of `Order`.
    agreeing, pairs : of so many pairs with a different figure, so many are in our order, too.
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
class Order:
    """The experiments of one paper, best first.

    Attributes
    ----------
    measure : what they are ordered by: the sum of those R@K that the paper prints of all of them.
    figures : of each experiment, in our order.
    published : at least one.
    """

    paper: str
    measure: str
    figures: Mapping[str, float]
    published: tuple[PublishedOrder, ...]

    @property
    def places(self) -> dict[str, int]:
        """Experiment to its place, from 1; equal figures share one."""
        return _places(self.figures)


def orders(recalls: Mapping[str, Mapping[str, float | int]], dataset: str) -> tuple[Order, ...]:
    """Put the systems of each paper in order, where it has two of ours or more in one table.

    Of several rows of a system over the same image features, as over other text features, the
    first printed one counts. Orders on the dataset itself are given, or else on all others: figures
    of two datasets do not compare, but orders may.

    Parameters
    ----------
    recalls : experiment to its table, all of one protocol.
    dataset : that they are on.
    """
    known = [row for row in published_rows() if row.experiment in recalls]
    found = (_order(rows, recalls, dataset) for rows in _parted(known, lambda row: row.paper))
    return tuple(order for order in found if order is not None)


def _order(
    rows: Sequence[PublishedRow], recalls: Mapping[str, Mapping[str, float | int]], dataset: str
) -> Order | None:
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
    ours = dict(sorted(ours.items(), key=lambda one: -one[1]))
    return Order(
        rows[0].paper,
        "sum of " + ", ".join(HEADINGS[column] for column in measured),
        ours,
        tuple(_published(table, measured, ours) for table in tables),
    )


def _published(
    table: Mapping[str, PublishedRow], measured: Sequence[str], ours: Mapping[str, float]
) -> PublishedOrder:
    row = next(iter(table.values()))
    figures = {n: sum(float(r.values[column]) for column in measured) for n, r in table.items()}
    pairs = [(a, b) for a, b in combinations(table, 2) if figures[a] != figures[b]]
    agreeing = sum((figures[a] - figures[b]) * (ours[a] - ours[b]) > 0 for a, b in pairs)
    heading = ", ".join(filter(None, (row.dataset, f"table {row.table}", row.image_feature)))
    return PublishedOrder(heading, figures, agreeing, len(pairs))


def _places(figures: Mapping[str, float]) -> dict[str, int]:
    return {name: 1 + sum(v > value for v in figures.values()) for name, value in figures.items()}


def _parted(
    rows: Sequence[PublishedRow], key: Callable[[PublishedRow], Hashable]
) -> Iterator[list[PublishedRow]]:
    parts: dict[Hashable, list[PublishedRow]] = {}
    for row in rows:
        parts.setdefault(key(row), []).append(row)
    yield from parts.values()
