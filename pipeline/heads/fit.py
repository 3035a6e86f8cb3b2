"""The job of `pipeline train`: an experiment's head is fitted on features and saved."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import split_for
from pipeline.devices import usable_device
from pipeline.files import created_by, require_folder
from pipeline.heads.base import FitOptions, Head, History
from pipeline.heads.head_types import Experiment, make_head, with_epochs_at_most
from pipeline.heads.inputs.averaged import averaged
from pipeline.heads.inputs.feature_rows import Rows, float32_bytes, is_in_memory
from pipeline.heads.inputs.feature_spec import HeadInputs, require_averageable
from pipeline.heads.inputs.pairs import HeldOut, Pairs, join_pairs, made_from, with_features
from pipeline.heads.inputs.word_vectors import KnownWords, known_words
from pipeline.heads.trained_head import TrainedHead
from pipeline.progress import QUIET, Monitor
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.resume.locking import WORK_FOLDER, only_writer


def fit(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: Experiment,
    images: str | Path,
    captions: str | Path,
    encoder: str | Path | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    seed: int = 0,
    max_epochs: int | None = None,
    workers: int = 0,
    device: str = "cpu",
    leave_out_failed: bool = False,
    monitor: Monitor = QUIET,
) -> TrainedHead:
    """Fit an experiment's head on the training split and save it.

    The validation split chooses the epoch. The state after each epoch is kept in a work folder
    beside `out` until the head is saved; the same call goes on from there and gives the same
    bytes, and the number of epochs may be raised in between.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the head.
    experiment : of its fields the name, the head, its settings, its word vectors and whether
        captions are averaged; the features are those of the folders below.
    images, captions : folders of the features of both sides.
    encoder : folder of the captions' fitted encoder, which knows the words of an experiment with
        word vectors; None: the one that `pipeline text` leaves beside the captions.
    train_split, validation_split : of the dataset; None: by their usual names, see
        `pipeline.datasets.splits.USUAL_NAMES`.
    seed : of everything random.
    max_epochs : train no longer than this, whatever the experiment says; None: as it says.
    workers : processes that read batches ahead; the head does not depend on their number.
    device : a torch device, such as "cuda".
    leave_out_failed : leave out images whose features failed; otherwise they are refused.
    monitor : gets log lines, and progress in epochs.

    Returns
    -------
    TrainedHead
        As it was saved, on `device`.

    Raises
    ------
    DatasetError
        The dataset is missing or damaged, or has no such split.
    HeadError
        Settings are unknown or out of range, the head cannot take these features, or the
        training diverged.
    MissingRows, FailedRows
        An image or caption has no features.
    EncoderError, VocabularyError, VectorsError
        The encoder or the word vectors cannot be read.
    ShardError
        Features are damaged, or another process is writing the same output.
    KeyboardInterrupt
        Somebody asked to stop; the number of epochs that are kept is logged.
    """
    out, captions = Path(out), Path(captions)
    require_folder(out)
    usable_device(device)
    settings = with_epochs_at_most(experiment.head, experiment.settings, max_epochs)
    data = TrainingData.of(dataset, images, captions, train_split, validation_split)
    head = make_head(experiment.head, settings, data.inputs)
    if experiment.average_captions:
        require_averageable(data.inputs.captions)
    known: KnownWords | None = None
    if experiment.word_vectors is not None:
        folder = Path(encoder or captions.with_name(f"{captions.name}.encoder"))
        known = known_words(data.inputs.captions, folder, experiment.word_vectors)
        monitor.log(
            f"{len(known.missing)} of {len(known.rows)} token ids have no vector in "
            f"{experiment.word_vectors}, first {', '.join(known.missing[:5])}"
        )
    pairs, validation = data.pairs(experiment.average_captions, leave_out_failed, monitor)
    log_sizes(data, pairs, validation, monitor)
    with work_folder(out) as work:
        words = None if known is None else known.rows
        options = FitOptions(seed, work=work, workers=workers, device=device, words=words)
        history = fit_with_progress(head, pairs, validation, options, experiment.name, monitor)
        return TrainedHead(
            experiment=experiment.name,
            kind=experiment.head,
            settings=settings,
            seed=seed,
            dataset=data.manifest.name,
            train_split=data.train_split,
            validation_split=data.validation_split,
            inputs=data.inputs,
            made_from=made_from(dataset, data.images.index, data.captions.index),
            word_vectors=None if known is None else known.origin,
            history=history,
            created_by=created_by("torch", "numpy", "safetensors"),
            head=head,
            average_captions=experiment.average_captions,
        ).save(out)


@dataclass(frozen=True)
class TrainingData:
    """What a training reads: a dataset, its splits, and the features of both sides.

    Attributes
    ----------
    manifest : the dataset.
    train_split, validation_split : their names.
    images, captions : the features of both sides.
    """

    manifest: Manifest
    train_split: str
    validation_split: str
    images: FeatureSet
    captions: FeatureSet

    @classmethod
    def of(
        cls,
        dataset: str | Path,
        images: str | Path,
        captions: str | Path,
        train_split: str | None,
        validation_split: str | None,
    ) -> "TrainingData":
        """Open a dataset and features by their folders; see `fit` for parameters and errors."""
        manifest = read_manifest(Path(dataset))
        return cls(
            manifest,
            split_for("train", manifest, train_split),
            split_for("validation", manifest, validation_split),
            FeatureSet(Path(images)),
            FeatureSet(Path(captions)),
        )

    @property
    def inputs(self) -> HeadInputs:
        """Shapes and recipes of both sides."""
        return HeadInputs.of(self.images, self.captions)

    def pairs(
        self, average_captions: bool, leave_out_failed: bool, monitor: Monitor
    ) -> tuple[Pairs, Pairs]:
        """Return the pairs of the training and of the validation split; see `fit` for errors."""
        splits = [
            self.manifest.select(split) for split in (self.train_split, self.validation_split)
        ]
        if leave_out_failed:
            asked = sum(map(len, splits))
            splits = [with_features(entries, self.images) for entries in splits]
            monitor.log(f"{asked - sum(map(len, splits))} images without features are left out")
        train, validation = (join_pairs(e, self.images, self.captions) for e in splits)
        return (averaged(train), averaged(validation)) if average_captions else (train, validation)


@contextmanager
def work_folder(out: Path) -> Iterator[Path]:
    """Give the folder beside a head's that keeps its checkpoints; it goes when all went well.

    Raises
    ------
    ShardError
        Another process is writing the same head.
    """
    # As for shards: `..`, `.` and links are resolved once and for all.
    resolved = out.resolve()
    work = resolved.parent / WORK_FOLDER / f"train-{resolved.name}"
    work.mkdir(parents=True, exist_ok=True)
    with only_writer(work.with_name(f"{work.name}.lock"), out):
        yield work
        shutil.rmtree(work, ignore_errors=True)


def log_sizes(data: TrainingData, pairs: Pairs, validation: Pairs, monitor: Monitor) -> None:
    """Log how many images and captions of which size both splits have."""
    monitor.log(f"{data.train_split}: {_sizes(pairs)}")
    monitor.log(f"{data.validation_split}: {_sizes(validation)}")


def fit_with_progress(
    head: Head,
    pairs: Pairs,
    validation: HeldOut,
    options: FitOptions,
    name: str,
    monitor: Monitor,
) -> History:
    """Fit a head with progress by epoch; if interrupted, log how many epochs are kept."""
    epochs: list[int] = []
    with monitor.progress(name, "epoch") as show:

        def progress(done: int, total: int, failed: int) -> None:
            if done and not epochs:
                monitor.log(
                    f"{options.work} has the state after epoch {done} of {total}; it goes on"
                )
            epochs.append(done)
            options.progress(done, total, failed)
            show(done, total, failed)

        try:
            return head.fit(pairs, validation, replace(options, progress=progress))
        except KeyboardInterrupt:
            kept = f"{epochs[-1] if epochs else 0} epochs are kept in {options.work}"
            monitor.log(f"interrupted: {kept}; the same command goes on from there")
            raise


def _sizes(pairs: Pairs) -> str:
    return ", ".join(
        f"{len(rows)} {side} {_size(rows)}"
        for side, rows in (("images", pairs.images), ("captions", pairs.captions))
    )


def _size(rows: Rows) -> str:
    where = "in memory" if is_in_memory(rows) else "read as needed"
    return f"{rows.row_shape} {float32_bytes(rows) / 1e6:.1f} MB {where}"
