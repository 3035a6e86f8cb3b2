"""Runs of one experiment from several seeds: `NAME`, `NAME-seed1`, `NAME-seed2` ..., folded."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

_RUN = re.compile(r"(.+)-seed[0-9]+")


@dataclass(frozen=True)
class Executor:
    """A figure over several runs: mean and sample standard deviation."""

    mean: float
    deviation: float


def system_of(name: str) -> str:
    """Return the experiment that a run from another seed is of, or the name itself."""
    found = _RUN.fullmatch(name)
    return found[1] if found else name


def folded(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the runs of each experiment, itself first.

    A run whose experiment is not there stands for itself.
    """
    given = list(names)
    runs: dict[str, list[str]] = {}
    for name in given:
        system = system_of(name)
        runs.setdefault(system if system in given else name, []).append(name)
    return {system: sorted(of, key=lambda name: (name != system, name)) for system, of in
            runs.items()}  # fmt: skip


def spreads(
    recalls: Sequence[Mapping[str, float | int]], columns: Iterable[str]
) -> dict[str, Executor]:
    """Return mean and deviation of each column over two runs or more."""
    values = {column: [float(one[column]) for one in recalls] for column in columns}
    return {column: Executor(fmean(of), stdev(of)) for column, of in values.items()}
