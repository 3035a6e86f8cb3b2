"""The steps from a dataset to recall tables: what each makes, from what, and whether it is there.

Files say what they were made from: shards their recipe and ids, a head its settings and the SHA-256
of its dataset and features, embeddings that of their head, a table that of its embeddings. So what
has to be made is read from the files, made by `pipeline run`, a single command or DVC alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import Role, split_for
from pipeline.experiments.layout import Layout
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.head_types import Experiment
from pipeline.progress import Monitor


@dataclass(frozen=True)
class Step:
    """One file or folder to make.

    Attributes
    ----------
    job : the command that makes it, such as "extract".
    name : of what is made, such as a recipe or an experiment.
    out : its folder or file.
    needs : what it is made from: `out` of other steps.
    size : of what it holds, for a person.
    fault : returns why it has to be made, such as `MISSING`; "" if it is there as it should be.
    make : makes it, or what is missing of it.
    always : whether `make` finds out by itself what is missing, and is called without a fault too,
        since only it sees that a picture or a caption has changed.
    """

    job: str
    name: str
    out: Path
    needs: tuple[Path, ...]
    size: str
    fault: Callable[[], str]
    make: Callable[[Monitor], object]
    always: bool = False

    def __str__(self) -> str:
        return f"{self.job} {self.name}"


@dataclass(frozen=True)
class Plan:
    """The steps of some experiments on one dataset, in an order in which they can be done.

    Attributes
    ----------
    layout : where the files lie.
    splits : of the roles of `pipeline.datasets.splits`, where they are not the usual ones.
    first_seed : of training; what is trained with another has it in its name, see `seeded`.
    max_epochs : of training, at most; None: as the experiments say.
    extract : options of `pipeline.images.extract.extract`, such as weights and precision.
    word_vectors : by name, the options of `pipeline.text.vectors.store.store_vectors`.
    evaluate : options of `pipeline.retrieval.evaluate.evaluate`.
    leave_out_failed : whether heads do without images that failed.
    experiment_named : returns an experiment by name, from which another one starts.
    steps : by what they make, filled by `add`.
    """

    layout: Layout
    splits: Mapping[str, str | None] = field(default_factory=dict)
    first_seed: int = 0
    max_epochs: int | None = None
    extract: Mapping[str, Any] = field(default_factory=dict)
    word_vectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    leave_out_failed: bool = False
    experiment_named: Callable[[str], Experiment] = resolve_experiment
    steps: dict[Path, Step] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset."""
        return read_manifest(self.layout.dataset)

    def split(self, role: Role) -> str:
        """Return the split that has a role."""
        return split_for(role, self.manifest, self.splits.get(role))

    def add(self, step: Step) -> Path:
        """Add a step, unless there is one that makes the same; return what it makes."""
        return self.steps.setdefault(step.out, step).out
