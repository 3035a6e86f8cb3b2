"""Interface of a family of features: its rows, their sources, and their computation.

A family is one module with one `FeatureSource`; `pipeline.store.jobs.make_features` does the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy.typing as npt
from numpy import int64

from pipeline.store.jobs.origins import Origin
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.workers.shipping import Ship


class FeatureSource(Protocol):
    """The rows of a feature set to compute.

    Attributes
    ----------
    header : FeatureHeader. Recipe, weights, axes, shape and dtype.
    ids : sequence of str. All row ids.
    origin : Origin. Source of each row.
    unit : str. Singular noun for a row, such as "image".
    gpu : bool. Whether each worker needs a GPU of its own.
    """

    @property
    def header(self) -> FeatureHeader: ...
    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def unit(self) -> str: ...
    @property
    def gpu(self) -> bool: ...

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of spans in order, in blocks, each with its first row number.

        No block crosses two spans. A row depends only on its source: not on its neighbours, the
        number of threads or where an interrupted run stopped.

        Parameters
        ----------
        spans : sequence of Span. Row numbers, as positions in `ids`.
        watch : Stopwatch. Accumulates the seconds of each stage.
        """

    def part(
        self, rows: npt.NDArray[int64], threads: int | None, ship: Ship
    ) -> "Callable[[], FeatureSource]":
        """Return a picklable function that builds the source of some rows on a worker.

        The header must follow from what the worker loads. Expensive objects, such as a network, are
        built once per process.

        Parameters
        ----------
        rows : (n,) int64. Positions in `ids`; they are rows 0 to n - 1 of the new source.
        threads : int or None. Cores per worker; None: all of its machine.
        ship : callable. Returns a `Shipped` for a file or folder, whose `here()` is its path on the
            worker, which may share no folder with this process.
        """
