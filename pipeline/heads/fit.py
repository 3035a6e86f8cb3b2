"""The job of `pipeline train`: fit an experiment's head on features and save it."""

from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.averaged import averaged
from pipeline.heads.inputs.feature_rows import Rows, float32_bytes, is_in_memory
from pipeline.heads.inputs.feature_spec import HeadInputs, require_averageable
from pipeline.heads.inputs.pairs import Pairs, join_pairs, made_from
from pipeline.heads.inputs.word_vectors import token_vectors
from pipeline.heads.trained_head import TrainedHead
from pipeline.heads.training.training_job import TrainingJob
from pipeline.heads.training.training_options import DEFAULT_TRAINING, TrainingOptions
from pipeline.store.shards.feature_set import FeatureSet


def fit(
    dataset: str | Path,
    out: str | Path,
    *,
    experiment: Experiment,
    images: str | Path,
    captions: str | Path,
    encoder: str | Path | None = None,
    training: TrainingOptions = DEFAULT_TRAINING,
) -> TrainedHead:
    """Fit an experiment's head on the training split and save it.

    The validation split selects the epoch. A work folder next to `out` keeps a checkpoint after
    each epoch until the head is saved; the same call resumes from there and yields the same bytes.
    A resumed call may have more epochs.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Folder of the head.
    experiment : Experiment. Name, head, settings, word vectors, caption averaging and precision are
        used; the features are those of the folders below.
    images, captions : str or Path. Feature folders of both sides.
    encoder : str or Path or None. Folder of the captions' fitted encoder, whose vocabulary an
        experiment with word vectors needs; None: the one that `pipeline text` saved next to the
        captions.
    training : TrainingOptions. Splits, seed, device and the like.

    Returns
    -------
    TrainedHead
        The saved head, on its training device.

    Raises
    ------
    HeadError
        Settings are unknown or out of range, the head does not support these features, or
        training diverged.
    MissingRows, FailedRows
        An image or caption has no features.
    DatasetError, ShardError, EncoderError, VectorsError
        An input is missing or damaged, or another process is writing to the same output.
    KeyboardInterrupt
        The run was interrupted; the number of saved epochs is logged.

    Examples
    --------
    >>> head = pipeline.fit(
    ...     "data/mine",
    ...     "heads/mine",
    ...     experiment=pipeline.resolve_experiment("qian2018-baseline"),
    ...     images="data/features/mine/efficientnet-lite0-pool",
    ...     captions="data/text/mine/mean-glove-6b-50d",
    ... )
    >>> head.kind, head.train_split
    ('ridge', 'train')
    """
    job = TrainingJob.open(read_manifest(Path(dataset)), out, training)
    experiment = job.in_precision(experiment)
    features = PairedFeatures(FeatureSet(Path(images)), FeatureSet(Path(captions)))
    unfitted = job.unfitted_head(experiment, features.inputs, features.made_from(dataset))
    if experiment.average_captions:
        require_averageable(features.inputs.captions)
    words = None
    if experiment.word_vectors is not None:
        folder = Path(encoder or Path(captions).with_name(f"{Path(captions).name}.encoder"))
        vectors = token_vectors(features.inputs.captions, folder, experiment.word_vectors)
        first = f", first {', '.join(vectors.missing[:5])}" if vectors.missing else ""
        job.log(
            f"{len(vectors.missing)} of {len(vectors.rows)} token ids have no vector in "
            f"{experiment.word_vectors}{first}"
        )
        unfitted, words = replace(unfitted, word_vectors=vectors.origin), vectors.rows
    pairs, validation = features.pairs(job, experiment.average_captions)
    log_sizes(job, pairs, validation)
    return job.fit(unfitted, pairs, validation, words=words)


@dataclass(frozen=True)
class PairedFeatures:
    """Features of images and captions to fit a head on."""

    images: FeatureSet
    captions: FeatureSet

    @property
    def inputs(self) -> HeadInputs:
        """Shapes and recipes of both sides."""
        return HeadInputs.of(self.images, self.captions)

    def made_from(self, dataset: str | Path) -> dict[str, str]:
        """Return the SHA-256 of a dataset's manifest and of the features."""
        return made_from(dataset, self.images.index, self.captions.index)

    def pairs(self, job: TrainingJob, average_captions: bool) -> tuple[Pairs, Pairs]:
        """Return the pairs of the training and of the validation split."""
        train, validation = (
            join_pairs(entries, self.images, self.captions) for entries in job.entries(self.images)
        )
        return (averaged(train), averaged(validation)) if average_captions else (train, validation)


def log_sizes(job: TrainingJob, pairs: Pairs, validation: Pairs) -> None:
    """Log the row counts and sizes of both splits."""
    job.log(f"{job.train_split}: {_sizes(pairs)}")
    job.log(f"{job.validation_split}: {_sizes(validation)}")


def _sizes(pairs: Pairs) -> str:
    return ", ".join(
        f"{len(rows)} {side} {_size(rows)}"
        for side, rows in (("images", pairs.images), ("captions", pairs.captions))
    )


def _size(rows: Rows) -> str:
    where = "in memory" if is_in_memory(rows) else "read as needed"
    return f"{rows.row_shape} {float32_bytes(rows) / 1e6:.1f} MB {where}"
