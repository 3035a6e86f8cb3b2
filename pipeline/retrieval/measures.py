"""Columns of the tables, each declared once: name, heading, meaning, limits, direction, decimals.

`MEASURES` has one entry per figure of ranks, which is all that a new figure needs: `recall.json`,
the printed table, chance levels, bootstrap intervals, the report and `pipeline compare` follow from
it. Tables of other outputs, such as localized phrases or captions, declare theirs as `Column` too.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb, inf

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.ranking.blocks import Ranks

Alike = Mapping[int, int]
"""Number of queries by their number of correct items."""

CUTOFFS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")
_ARROWS = dict(zip(DIRECTIONS, ("i→t", "t→i"), strict=True))
ARROWS_LEGEND = "i→t: an image looks for its captions; t→i: a caption looks for its image."


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # its key in JSON and CSV, and the figure's name for `pipeline compare`
    heading: str = ""  # in printed tables and pages; "": the name
    meaning: str = ""  # sentence of the report's legend
    limits: tuple[float, float] = (0.0, 100.0)
    decimals: int = 1  # 0 for counts
    lower_is_better: bool = False

    @property
    def title(self) -> str:
        """The display name."""
        return self.heading or self.name

    def text(self, value: float | int) -> str:
        """Return a value as printed."""
        return f"{value:.{self.decimals}f}"


@dataclass(frozen=True)
class Measure:
    """A figure of the ranks, counted from 0, of all queries of one direction."""

    column: Column  # its name and heading follow those of a direction
    # Summand of each query, (queries,) floats, of a figure that is a mean; only these can be
    # compared by paired tests.
    each: Callable[[Ranks], npt.NDArray[np.floating]] | None = None
    figure: Callable[[Ranks], float | int] | None = None  # None: the mean of `each`
    # Expectation for a random order of that many items.
    chance: Callable[[Alike, int], float | int] | None = None
    legend: str = ""  # phrase of the printed table's legend
    interval: bool = False  # whether tables have its bootstrap interval; requires `each`
    in_rsum: bool = False
    of_protocols: bool = False  # whether only the table of a protocol has it
    in_report: bool = True

    def of(self, ranks: Ranks) -> float | int:
        """Return the figure of some queries."""
        if self.figure is not None:
            return self.figure(ranks)
        assert self.each is not None
        return float(np.mean(self.each(ranks)))

    def name(self, direction: str) -> str:
        """Return the name of the column of a direction."""
        return f"{direction}_{self.column.name}"

    def columns(self) -> list[Column]:
        """Return the columns of both directions."""
        heading = self.column.heading
        return [
            replace(self.column, name=self.name(d), heading=heading and f"{_ARROWS[d]} {heading}")
            for d in DIRECTIONS
        ]


def recall_at(k: int, in_rsum: bool = False) -> Measure:
    """Return R@K: the percentage of queries whose rank, from 0, is below K."""

    def chance(alike: Alike, items: int) -> float:
        # A query with c of the items finds none among K with C(items - c, K) / C(items, K).
        missed = sum(
            n * Fraction(comb(items - c, k), max(1, comb(items, k))) for c, n in alike.items()
        )
        return float(100 * (1 - missed / sum(alike.values())))

    return Measure(
        Column(
            f"r{k}",
            f"R@{k}",
            "R@K: per cent of queries with a correct item among the first K results.",
        ),
        lambda ranks: 100.0 * (ranks < k),
        chance=chance,
        legend="R@K in per cent",
        interval=True,
        in_rsum=in_rsum,
    )


def _median_rank(ranks: Ranks) -> int:
    return int(np.floor(np.median(ranks))) + 1


def _chance_median(alike: Alike, items: int) -> int:
    """Return the smallest rank, from 1, that half of the queries reach."""
    missing = {right: Fraction(1) for right in alike}
    rank, half = 0, Fraction(sum(alike.values()), 2)
    while sum(number * missing[right] for right, number in alike.items()) > half:
        for right in missing:
            missing[right] *= Fraction(items - right - rank, items - rank)
        rank += 1
    return rank


def _chance_mean(alike: Alike, items: int) -> float:
    # The first of c items is at rank (items + 1) / (c + 1) on average.
    mean = sum(n * Fraction(items + 1, c + 1) for c, n in alike.items())
    return float(mean / sum(alike.values()))


def _rank_column(name: str, heading: str) -> Column:
    what = f"{name.replace('_', ' ')} of the best correct item, from 1; lower is better."
    return Column(name, heading, f"{heading}: {what}", (1, inf), lower_is_better=True)


_RANKS_LEGEND = "medr, meanr: median and mean rank, from 1"

MEASURES = (
    *(recall_at(k, in_rsum=True) for k in CUTOFFS),
    Measure(
        _rank_column("median_rank", "medr"),
        figure=_median_rank,
        chance=_chance_median,
        legend=_RANKS_LEGEND,
    ),
    Measure(
        _rank_column("mean_rank", "meanr"),
        lambda ranks: ranks + 1.0,
        lambda ranks: float(np.mean(ranks)) + 1.0,
        chance=_chance_mean,
        legend=_RANKS_LEGEND,
        in_report=False,
    ),
    # Mean reciprocal rank (MRR): "Mean Inverted Rank (MIR) at which the annotated item is found"
    # (Dong et al. 2018, on TrecVid 2016, with one annotated item per query); of several, the best.
    Measure(
        Column("mean_inverted_rank", "", "Mean of 1 / rank, from 1.", (0, 1), decimals=3),
        lambda ranks: 1.0 / (ranks + 1.0),
        interval=True,
        of_protocols=True,
        in_report=False,
    ),
)
RSUM = Column("rsum", "rsum", "rsum: sum of the six R@K, at most 600.", (0, 600))
_COUNTS = tuple(
    Column(name, heading, limits=(0, inf), decimals=0)
    for name, heading in (
        ("num_images", "images"),
        ("num_captions", "captions"),
        ("captions_per_image", "captions an image"),
    )
)
_NUM_FOLDS = Column("num_folds", "folds", limits=(1, inf), decimals=0)

IN_TABLES = tuple(m for m in MEASURES if not m.of_protocols)
WITH_INTERVAL = tuple(m for m in MEASURES if m.interval)


def _names(measures: Iterable[Measure], *endings: str) -> list[str]:
    """Return the columns of measures, one direction after the other, with each of the endings."""
    chosen = list(measures)
    return [f"{m.name(d)}{end}" for d in DIRECTIONS for m in chosen for end in endings or ("",)]


METRICS = (*_names(IN_TABLES), RSUM.name)
COUNTS = tuple(count.name for count in _COUNTS)
"""The columns of every recall table, with `METRICS`."""
CHANCE_COLUMNS = (*_names((m for m in IN_TABLES if m.chance), "_chance"), "rsum_chance")
SMALL_COLUMNS = (
    *CHANCE_COLUMNS,
    *_names((m for m in IN_TABLES if m.interval), "_low", "_high"),
    "rsum_low",
    "rsum_high",
)
"""Additional columns of the table of a small gallery, all or none."""
PROTOCOL_COLUMNS = (
    *_names(m for m in MEASURES if m.of_protocols),
    *_names((m for m in WITH_INTERVAL if m.chance), "_chance"),
    *_names(WITH_INTERVAL, "_low", "_high"),
    "rsum_low",
    "rsum_high",
    _NUM_FOLDS.name,
)
"""Columns that a protocol adds to a recall table, all or none."""

COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (*(c for m in MEASURES for c in m.columns()), RSUM, *_COUNTS, _NUM_FOLDS)
}
"""Columns of recall tables by name, without chance levels and bounds."""
REPORT_COLUMNS = (*_names(m for m in IN_TABLES if m.in_report), RSUM.name)
"""Figures that both our tables and the papers may have."""
COMPARED: Mapping[str, Column] = {
    name: COLUMNS[name] for name in (RSUM.name, *_names(m for m in MEASURES if m.each))
}
"""Figures for paired tests: sums of means over queries."""
IN_RSUM = tuple(_names(m for m in MEASURES if m.in_rsum))


def measure_of(name: str) -> tuple[str, Measure]:
    """Return the direction and the measure of a column."""
    return next((d, m) for m in MEASURES for d in DIRECTIONS if m.name(d) == name)


def table_legend() -> str:
    """Return the legend of the printed table."""
    phrases = dict.fromkeys(m.legend for m in IN_TABLES if m.legend)
    return f"{ARROWS_LEGEND} {'; '.join(phrases)}."


def report_legend() -> str:
    """Return the meaning of the report's columns, a sentence each."""
    shown = [m for m in IN_TABLES if m.in_report]
    summed = [m.column.meaning for m in shown if m.in_rsum]
    others = [m.column.meaning for m in shown if not m.in_rsum]
    return " ".join(dict.fromkeys([*summed, RSUM.meaning, *others]))
