"""What a family of features provides: its rows, what they are made from, and how to compute some.

A family is one module with one `FeatureSource`; everything else about a feature set is done by
`pipeline.jobs.make_features`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy.typing as npt
from numpy import int64

from pipeline.jobs.origins import Origin
from pipeline.progress import Stopwatch
from pipeline.shards.format import FeatureHeader, RowBlock
from pipeline.shards.plan import Span


class FeatureSource(Protocol):
    """The rows of a feature set that is to be made.

    Attributes
    ----------
    header : recipe, weights, axes, shape and dtype.
    ids : of all rows.
    origin : what each row is made from.
    unit : what a row is, in the singular, such as "image".
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
        """Yield the rows of some spans in order, a block at a time, with its first row's number.

        No block crosses two spans. A row depends on its origin alone, not on its neighbours, on the
        number of threads or on where an interrupted run stopped.

        Parameters
        ----------
        spans : of row numbers; a row's number is its place in `ids`.
        watch : the seconds by stage are added to it.
        """

    def task(self, threads: int | None) -> "Task":
        """Return what a worker needs to build the same source.

        Parameters
        ----------
        threads : cores that a worker may use; None: as many as it has.
        """


@dataclass(frozen=True)
class Task:
    """What a worker needs to build the source of some rows.

    Attributes
    ----------
    factory : "module:function"; the function returns the source of some rows, given `settings`,
        the name of the dataset, the ids of the rows and what `rows` returned for them. What is
        expensive, such as a network, it builds once in a process.
    settings : JSON values, the same for all rows.
    rows : returns JSON values that describe the rows of these numbers, (n,) int64.
    gpu : whether each worker needs a GPU of its own.
    """

    factory: str
    settings: dict[str, Any]
    rows: Callable[[npt.NDArray[int64]], Any]
    gpu: bool = False


def source_of_task(
    factory: str, settings: dict[str, Any], dataset: str, ids: Sequence[str], rows: Any
) -> FeatureSource:
    """Build a source from what a `Task` records; see there."""
    module, _, function = factory.partition(":")
    source: FeatureSource = getattr(import_module(module), function)(settings, dataset, ids, rows)
    return source
