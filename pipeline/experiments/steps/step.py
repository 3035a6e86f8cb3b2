"""Steps from a dataset to recall tables: inputs, output, and whether each step must run.

Files record their inputs: shards their recipe and ids, a head its settings and the SHA-256 of its
dataset and features, embeddings that of their head, a table that of its embeddings. A stale output
is therefore detected from the files, whichever command or DVC stage wrote it.
"""

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import Role, require_captions, split_for
from pipeline.experiments.layout import Layout
from pipeline.heads.experiments import experiment_finder
from pipeline.heads.head_types import Experiment
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.store.current.readers import file_record
from pipeline.store.current.record import Reader, Record, stale
from pipeline.store.errors import FileReadError, PipelineError, is_out_of_memory
from pipeline.store.files import OutputError, require_folder
from pipeline.store.progress import Monitor

_OF_THE_SYSTEM = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One file or folder to compute."""

    job: str  # command that computes it, such as "extract"
    name: str  # of a recipe or an experiment
    out: Path
    inputs: tuple[Path, ...]  # `out` of other steps
    size: str  # for messages
    make: Callable[[Monitor], object]  # computes it, or its missing parts
    read: Reader = file_record  # from `out` to its record
    expected: Callable[[], Record] = dict  # the record that `out` must have
    # `make` itself finds missing and changed parts, such as images and captions, and is called even
    # if the record is up to date.
    always: bool = False
    fitted: Path | None = None  # second output: what was fitted for it, such as an encoder
    check: Callable[[], object] = lambda: None  # raises if a package that it needs is missing
    bytes: int = 0  # on the disk, if they are known before it runs

    def __str__(self) -> str:
        return f"{self.job} {self.name}"

    def stale(self) -> str:
        """Return why it must be computed; "" if it is up to date."""
        return stale(self.out, self.read, self.expected)


@dataclass(frozen=True)
class Failure:
    """A failed step: its job and name, such as "train vsepp", and the reason."""

    step: str
    error: PipelineError


@dataclass(frozen=True)
class Plan:
    """The steps of experiments on one dataset, in topological order."""

    layout: Layout
    # Of all trainings; its seed is the first one, others are part of the name, see `seeded`.
    training: TrainingOptions = DEFAULT_TRAINING
    test_split: str | None = None  # split to embed and evaluate; None: the test split
    extract: Mapping[str, Any] = field(default_factory=dict)  # options of `pipeline.extract`
    # Options of `store_vectors` by name.
    word_vectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)  # options of `pipeline.evaluate`
    corpus: Path | None = None  # text file for language models that are also trained on plain text
    # Feature sets that were made elsewhere, by the place that a step links them to.
    given: Mapping[Path, Path] = field(default_factory=dict)
    # Returns an experiment by name, from which another one starts.
    experiment_named: Callable[[str], Experiment] = field(default_factory=experiment_finder)
    steps: dict[Path, Step] = field(default_factory=dict)  # by output, filled by `add`

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset."""
        return read_manifest(self.layout.dataset)

    def split(self, role: Role) -> str:
        """Return the split for a role."""
        named: dict[Role, str | None] = {
            "train": self.training.train_split,
            "validation": self.training.validation_split,
            "test": self.test_split,
        }
        return split_for(role, self.manifest, named[role])

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All outputs, in the order of the steps."""
        outputs = [out for s in self.steps.values() for out in (s.out, s.fitted) if out is not None]
        return tuple(out for out in outputs if out.exists())

    def add(self, step: Step) -> Path:
        """Add a step, unless one with the same output exists; return the output."""
        return self.steps.setdefault(step.out, step).out

    def require_all(self) -> None:
        """Raise before the first step if a split, a package, a folder or space is missing."""
        require_captions(self.manifest, self.split("train"))
        require_captions(self.manifest, self.split("validation"))
        for step in self.steps.values():
            require_folder(step.out.parent)
        missing = [step for step in self.steps.values() if not step.out.exists()]
        for step in missing:
            step.check()
        needed, root = sum(step.bytes for step in missing), self.layout.root.absolute()
        free = shutil.disk_usage(next(p for p in (root, *root.parents) if p.exists())).free
        if needed > free:
            raise OutputError(
                f"the missing features need {needed / 1e6:.1f} MB in {root}, and {free / 1e6:.1f} "
                "MB are free; free some space, or run fewer experiments"
            )

    def make(self, monitor: Monitor) -> tuple[tuple[str, ...], dict[Path, Failure]]:
        """Run missing and stale steps; return those that changed their output, and the failures.

        Failures are by missing output: that of its own step, or the first one that it needs. A
        failed step does not stop independent ones; a system error, such as a full disk, is raised
        at once.
        """
        changed: list[str] = []
        failures: dict[Path, Failure] = {}
        for number, step in enumerate(self.steps.values(), 1):
            line = f"[{number}/{len(self.steps)}] {step}:"
            if lacking := [one for one in step.inputs if one in failures]:
                # The root cause, however many steps back.
                failure = failures[lacking[0]]
                failures[step.out] = failure
                monitor.log(f"{line} skipped, since {failure.step} failed")
                continue
            try:
                if self._make(step, line, monitor):
                    changed.append(str(step))
            except PipelineError as error:
                if stops_all(error):
                    raise
                failures[step.out] = Failure(str(step), error)
                monitor.log(f"{line} failed: {error}")
        return tuple(changed), failures

    def _make(self, step: Step, line: str, monitor: Monitor) -> bool:
        """Run a step if it is stale; return whether its output changed."""
        reason = step.stale()
        if not reason and not step.always:
            monitor.log(f"{line} up to date")
            return False
        # The record has the hash of the content: an output that was only checked has not changed.
        before = None if reason else step.read(step.out)
        monitor.log(f"{line} {reason or 'checked'} -> {step.out}")
        step.make(monitor)
        return bool(reason) or step.read(step.out) != before

    def announce(self, monitor: Monitor) -> tuple[str, ...]:
        """Log the effect of each step; return those that would run, if only for their inputs."""
        undone: set[Path] = set()
        stale_steps = []
        for step in self.steps.values():
            before = undone & {*step.inputs}
            reason = "its inputs are to be made" if before else step.stale()
            if reason:
                undone.add(step.out)
                stale_steps.append(str(step))
            state = "to be checked" if step.always else "up to date"
            monitor.log(f"{step}: {reason or state} ({step.size}) -> {step.out}")
        return tuple(stale_steps)


def stops_all(error: PipelineError) -> bool:
    """Return whether an error is a system error, such as a full disk, so other steps fail too."""
    return any(
        isinstance(cause, FileReadError)
        or is_out_of_memory(cause)
        or (isinstance(cause, OSError) and cause.errno in _OF_THE_SYSTEM)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
