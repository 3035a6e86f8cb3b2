"""Interface of a family of features: its rows, their sources, and their computation.

A family is one module with one `FeatureSource`; `pipeline.store.jobs.make_features` does the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy.typing as npt
from numpy import int64

from pipeline.store.jobs.origins import Origin
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span


class FeatureSource(Protocol):
    """The rows of a feature set to compute.

    Attributes
    ----------
    header : FeatureHeader. Recipe, weights, axes, shape and dtype.
    ids : sequence of str. All row ids.
    origin : Origin. Source of each row.
    unit : str. Singular noun for a row, such as "image".
    """

    @property
    def header(self) -> FeatureHeader: ...
    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def unit(self) -> str: ...

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the rows of spans in order, in blocks, each with its first row number.

        No block crosses two spans. A row depends only on its source: not on its neighbours, the
        number of threads or where an interrupted run stopped.

        Parameters
        ----------
        spans : sequence of Span. Row numbers, as positions in `ids`.
        watch : Stopwatch. Accumulates the seconds of each stage.
        """

    def task(self, threads: int | None) -> "Task":
        """Return what a worker needs to build the same source.

        Parameters
        ----------
        threads : int or None. Cores per worker; None: all of its machine.
        """


@dataclass(frozen=True)
class Task:
    """Description from which a worker builds the source of some rows.

    Attributes
    ----------
    factory : str. "module:function"; the function returns a source, given `settings`, the dataset
        name, the row ids and the result of `rows`. It builds expensive objects, such as a network,
        once per process.
    settings : dict. JSON values shared by all rows.
    rows : callable. Returns JSON values that describe rows (n,) int64.
    gpu : bool. Whether each worker needs a GPU of its own.
    """

    factory: str
    settings: dict[str, Any]
    rows: Callable[[npt.NDArray[int64]], Any]
    gpu: bool = False


def source_of_task(
    factory: str, settings: dict[str, Any], dataset: str, ids: Sequence[str], rows: Any
) -> FeatureSource:
    """Build a source from the values of a `Task`."""
    module, _, function = factory.partition(":")
    source: FeatureSource = getattr(import_module(module), function)(settings, dataset, ids, rows)
    return source
