"""Kinds of experiments that optional families add to `pipeline.run`, such as language models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pipeline.experiments.layout import Layout
from pipeline.experiments.steps.step import Plan
from pipeline.heads.experiments import Size
from pipeline.store.families import all_added


class ExperimentKind(Protocol):
    """Experiments that are trained like heads, but have no recall table."""

    def names(self) -> Sequence[str]:
        """Return the published experiments of this kind."""

    def check(self, names: Sequence[str], corpus: Path | None) -> None:
        """Raise if `corpus`, a text file to train on, would have no effect on these experiments."""

    def add(self, plan: Plan, name: str, size: Size, seed: int) -> None:
        """Add the steps of an experiment, trained with a seed."""

    def out(self, layout: Layout, name: str) -> Path:
        """Return the folder of a trained experiment."""

    def perplexity(self, out: Path) -> float:
        """Return the validation perplexity per word of a trained experiment."""


def experiment_kinds() -> list[ExperimentKind]:
    """Return the kinds of all families; a family adds one as `EXPERIMENTS`."""
    return all_added("EXPERIMENTS")


def kind_of(name: str) -> ExperimentKind | None:
    """Return the kind of a published experiment, possibly on other features; None for a head."""
    base = name.partition("@")[0]
    return next((kind for kind in experiment_kinds() if base in kind.names()), None)
