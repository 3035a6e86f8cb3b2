"""Ordered prefetch: tasks run ahead on threads, results are yielded in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar

Job = TypeVar("Job")
Started = TypeVar("Started")
Result = TypeVar("Result")


def started_ahead(
    jobs: Iterable[Job], start: Callable[[Job], Started], most: int
) -> Iterator[tuple[Job, Started]]:
    """Yield each job with the result of `start`, in order; at most `most` are started ahead."""
    waiting: deque[tuple[Job, Started]] = deque()
    for job in jobs:
        if len(waiting) == most:
            yield waiting.popleft()
        waiting.append((job, start(job)))
    yield from waiting


def in_order(
    jobs: Iterable[Job], submit: Callable[[Job], Future[Result]], most: int
) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result, in order, while later jobs run, as `started_ahead`."""
    for job, future in started_ahead(jobs, submit, most):
        yield job, future.result()


@contextmanager
def ending_at_once(*pools: Executor) -> Iterator[None]:
    """Cancel pending tasks of executors when the block ends, for example on an interrupt."""
    try:
        yield
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
