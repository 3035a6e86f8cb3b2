"""One training, from the dataset's splits to the saved head, for all kinds of training."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pipeline.datasets.entries import PackedEntries
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.splits import require_captions, split_for
from pipeline.heads.base import FitOptions
from pipeline.heads.head_types import Experiment, make_head, trained_with, with_precision
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import HeldOut, Pairs, with_features
from pipeline.heads.trained_head import TrainedHead
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.builder.locking import WORK_FOLDER, only_writer
from pipeline.store.devices import choose_device, require_fast_bf16, usable_device
from pipeline.store.files import created_by, require_folder
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.wording import counted


@dataclass(frozen=True)
class TrainingJob:
    """A training on the splits of a dataset, and its output folder."""

    manifest: Manifest
    out: Path  # output folder
    train_split: str
    validation_split: str
    options: TrainingOptions  # with device and precision resolved

    @classmethod
    def open(cls, manifest: Manifest, out: str | Path, options: TrainingOptions) -> "TrainingJob":
        """Resolve splits, device and precision; check that the output can be written."""
        require_folder(Path(out))
        options = replace(options, device=choose_device(options.device, options.monitor))
        usable_device(options.device)
        options = options.with_named_precision()
        train = split_for("train", manifest, options.train_split)
        validation = split_for("validation", manifest, options.validation_split)
        for split in (train, validation):
            require_captions(manifest, split)
        return cls(manifest, Path(out), train, validation, options)

    def log(self, line: str) -> None:
        self.options.monitor.log(line)

    def entries(self, images: FeatureSet | None = None) -> tuple[PackedEntries, PackedEntries]:
        """Return training and validation images, on request without those that failed."""
        train, validation = (
            self.manifest.select(split) for split in (self.train_split, self.validation_split)
        )
        if images is None or not self.options.leave_out_failed:
            return train, validation
        complete = with_features(train, images), with_features(validation, images)
        left_out = len(train) + len(validation) - sum(map(len, complete))
        left = counted(left_out, "image without features is", "images without features are")
        self.log(f"{left} left out")
        return complete

    def in_precision(self, experiment: Experiment) -> Experiment:
        """Return an experiment with the precision of the options."""
        resolved = with_precision(experiment, self.options.precision)
        if "bf16" in (resolved.precision, resolved.finetuning and resolved.finetuning.precision):
            require_fast_bf16(self.options.device)
        elif "bf16" in (experiment.precision, self.options.precision):
            self.log(f"head {experiment.head} is solved in closed form, in float32")
        return resolved

    def unfitted_head(
        self, experiment: Experiment, inputs: HeadInputs, made_from: Mapping[str, str]
    ) -> TrainedHead:
        """Return the record of an experiment's unfitted head."""
        fields = trained_with(experiment, self.options, self.train_split, self.validation_split)
        return TrainedHead(
            experiment=experiment.name, dataset=self.manifest.name, inputs=inputs,
            made_from=made_from, word_vectors=None, history=[],
            created_by=created_by("torch", "numpy", "safetensors"),
            head=make_head(experiment.head, fields["settings"], inputs), **fields,
        )  # fmt: skip

    def fit(
        self,
        unfitted: TrainedHead,
        train: Pairs,
        validation: HeldOut,
        *,
        words: Features | None = None,
        start: Mapping[str, torch.Tensor] | None = None,
    ) -> TrainedHead:
        """Fit a head and save it."""
        with self.fitting(unfitted.experiment) as options:
            options = replace(options, words=words, start=start, precision=unfitted.precision)
            history = unfitted.head.fit(train, validation, options)
            return replace(unfitted, history=history).save(self.out)

    @contextmanager
    def fitting(self, name: str, progress: Progress = no_progress) -> Iterator[FitOptions]:
        """Yield the options of one fit; delete its checkpoints when the block succeeds."""
        done_epochs = 0
        started = False
        with _work_folder(self.out) as work, self.options.monitor.progress(name, "epoch") as show:

            def report(done: int, total: int, failed: int) -> None:
                nonlocal done_epochs, started
                if done and not started:
                    self.log(f"resuming from {work} after epoch {done} of {total}")
                done_epochs, started = done, True
                progress(done, total, failed)
                show(done, total, failed)

            try:
                yield FitOptions(
                    self.options.seed,
                    report,
                    work,
                    self.options.workers,
                    self.options.device,
                    log=self.log,
                )
            except KeyboardInterrupt:
                self.log(
                    f"interrupted: {counted(done_epochs, 'epoch is', 'epochs are')} kept in "
                    f"{work}; the same command resumes from there"
                )
                raise


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    """Yield the locked checkpoint folder next to an output; delete it on success."""
    # As for shards: `..`, `.` and links are resolved once.
    resolved = out.resolve()
    work = resolved.parent / WORK_FOLDER / f"train-{resolved.name}"
    work.mkdir(parents=True, exist_ok=True)
    with only_writer(work.with_name(f"{work.name}.lock"), out):
        yield work
        shutil.rmtree(work, ignore_errors=True)
