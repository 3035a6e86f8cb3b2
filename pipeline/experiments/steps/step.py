"""The steps from a dataset to recall tables: what each makes, from what, and whether it must run.

Files record what they were made from: shards their recipe and ids, a head its settings and the
SHA-256 of its dataset and features, embeddings that of their head, a table that of its embeddings.
So what has to be made is read from the files, whichever command or DVC stage made them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import Role, split_for
from pipeline.errors import PipelineError
from pipeline.experiments.failures import Failure, StepsFailed, stops_all
from pipeline.experiments.layout import Layout
from pipeline.experiments.records import Reader, Record, file_record, why_stale
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.head_types import Experiment
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.progress import Monitor


@dataclass(frozen=True)
class Step:
    """One file or folder to make.

    Attributes
    ----------
    job : str. The command that makes it, such as "extract".
    name : str. What is made, such as a recipe or an experiment.
    out : Path. Its folder or file.
    needs : tuple of Path. What it is made from: `out` of other steps.
    size : str. What it holds, for a person.
    make : callable. Makes it, or what is missing of it.
    read : Reader. Returns the record of `out`.
    expected : callable. Returns what the record must state; see `why_stale`.
    always : bool. `make` finds out by itself what is missing, and is called for an output that is
        up to date too, since only it sees that an image or a caption has changed, is new or was
        removed.
    """

    job: str
    name: str
    out: Path
    needs: tuple[Path, ...]
    size: str
    make: Callable[[Monitor], object]
    read: Reader = file_record
    expected: Callable[[], Record] = dict
    always: bool = False

    def __str__(self) -> str:
        return f"{self.job} {self.name}"

    def why_stale(self) -> str:
        """Return why it has to be made; "" if it is up to date."""
        return why_stale(self.out, self.read, self.expected)


@dataclass(frozen=True)
class Plan:
    """The steps of some experiments on one dataset, in an order in which they can be done.

    Attributes
    ----------
    layout : Layout. Paths of the files.
    training : TrainingOptions. Of all trainings; its seed is the first one, what is trained with
        another has it in its name, see `seeded`. Its monitor is that of `make`.
    test_split : str or None. The split that is embedded and measured; None: by its usual names.
    extract : mapping. Options of `pipeline.images.extract.extract`, such as weights and precision.
    word_vectors : mapping. By name, options of `pipeline.text.vectors.store.store_vectors`.
    evaluate : mapping. Options of `pipeline.retrieval.evaluate.evaluate`.
    experiment_named : callable. Returns an experiment by name, from which another one starts.
    steps : dict of Path to Step. By what they make, filled by `add`.
    """

    layout: Layout
    training: TrainingOptions = DEFAULT_TRAINING
    test_split: str | None = None
    extract: Mapping[str, Any] = field(default_factory=dict)
    word_vectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    experiment_named: Callable[[str], Experiment] = resolve_experiment
    steps: dict[Path, Step] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset."""
        return read_manifest(self.layout.dataset)

    def split(self, role: Role) -> str:
        """Return the split that has a role."""
        named: dict[Role, str | None] = {
            "train": self.training.train_split,
            "validation": self.training.validation_split,
            "test": self.test_split,
        }
        return split_for(role, self.manifest, named[role])

    def trained(self, seed: int) -> dict[str, Any]:
        """Return what every trained output records of a training with a seed."""
        splits = {"train_split": self.split("train"), "validation_split": self.split("validation")}
        return {"seed": seed, **splits}

    def add(self, step: Step) -> Path:
        """Add a step, unless another one makes the same; return what it makes."""
        return self.steps.setdefault(step.out, step).out

    def make(self, monitor: Monitor) -> tuple[str, ...]:
        """Make what is missing or out of date, and return the steps that changed their output.

        A step that fails does not stop those that do not need it.

        Raises
        ------
        StepsFailed
            Some steps failed; all that do not need them are done.
        PipelineError
            The system is at fault, as where the disk is full; the steps before it are done.
        """
        made: list[str] = []
        failures: dict[Path, Failure] = {}
        for number, step in enumerate(self.steps.values(), 1):
            line = f"[{number}/{len(self.steps)}] {step}:"
            if lacking := [need for need in step.needs if need in failures]:
                # The first cause, however far back it is.
                failure = failures[lacking[0]]
                failures[step.out] = failure
                monitor.log(f"{line} left out, since {failure.step} failed")
                continue
            try:
                if self._make(step, line, monitor):
                    made.append(str(step))
            except PipelineError as error:
                if stops_all(error):
                    raise
                failures[step.out] = Failure(str(step), error)
                monitor.log(f"{line} failed: {error}")
        if failures:
            raise StepsFailed(failures, made)
        return tuple(made)

    def _make(self, step: Step, line: str, monitor: Monitor) -> bool:
        """Make a step if it has to be; return whether its output is another one."""
        reason = step.why_stale()
        if not reason and not step.always:
            monitor.log(f"{line} up to date")
            return False
        before = None if reason else step.read(step.out)
        monitor.log(f"{line} {reason or 'checked'} -> {step.out}")
        step.make(monitor)
        return bool(reason) or step.read(step.out) != before

    def announce(self, monitor: Monitor) -> tuple[str, ...]:
        """Log what each step would do, and return the steps that would be made.

        What depends on a step that would be made, would be made too.
        """
        undone: set[Path] = set()
        made = []
        for step in self.steps.values():
            stale = undone & {*step.needs}
            reason = "its inputs are to be made" if stale else step.why_stale()
            if reason:
                undone.add(step.out)
                made.append(str(step))
            state = "to be checked" if step.always else "up to date"
            monitor.log(f"{step}: {reason or state} ({step.size}) -> {step.out}")
        return tuple(made)
