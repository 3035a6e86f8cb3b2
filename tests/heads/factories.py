"""Made pairs whose captions describe their images through a fixed random map, with noise."""

import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.datasets.entries import ImageEntry
from pipeline.heads.base import FitOptions, Head, History
from pipeline.heads.inputs.batches import Batch, shuffled_captions
from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.layers.scaling import mean_and_scale
from pipeline.heads.trained_head import TrainedHead
from pipeline.heads.training.task import TrainingTask, overall, plateau
from pipeline.heads.training.trainer import NetworkHead
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.format import OK, UNREADABLE, FeatureHeader, RowBlock
from pipeline.testing.heads import CAPTION_DIM, IMAGE_DIM
from pipeline.testing.heads import all_of as all_of
from pipeline.testing.heads import inputs as inputs
from pipeline.testing.heads import pairs as pairs
from pipeline.text.encoders.token_ids import FIRST_WORD

MOMENTS = ("between", "within", "saving")


def rsum(head: Head, test: Pairs) -> float:
    """Return the sum of the six recalls in percent, of 600."""
    return recall_table(
        Embeddings(
            test.image_ids,
            head.embed_images(test.images),
            test.caption_ids,
            test.caption_image_ids,
            head.embed_captions(test.captions),
            head.similarity,
            {},
        )
    )["rsum"]


def trained_head(
    head: Head, history: History, kind: str, settings: dict[str, Any] | None = None, **more: Any
) -> TrainedHead:
    """Return a fitted head as it is saved, of experiment `made`; `more` are other fields."""
    values: dict[str, Any] = {
        "experiment": "made", "kind": kind, "settings": settings or {}, "seed": 0,
        "dataset": "made", "train_split": "train", "validation_split": "val", "made_from": {},
        "inputs": inputs(), "word_vectors": None, "history": history, "created_by": "tests",
        "head": head,
    }  # fmt: skip
    return TrainedHead(**values | more)


def entries_of(made: Pairs) -> tuple[ImageEntry, ...]:
    """Return the manifest's entries of made pairs."""
    counts = np.bincount(made.image_of_caption)
    return tuple(
        ImageEntry(image_id, f"{image_id}.jpg", "train", ("a caption",) * count)
        for image_id, count in zip(made.image_ids, counts, strict=True)
    )


def write_features(
    folder: Path,
    ids: Sequence[str],
    features: Features,
    failed: Collection[str] = (),
    **changes: object,
) -> None:
    """Write features as shards of 25 rows, of the recipe {"name": "made"} unless changed."""
    metadata: dict[str, object] = {
        "recipe": {"name": "made"},
        "weights": "none",
        "weights_sha256": "0" * 64,
        "axes": "row, dim",
        "dataset": "made",
        "row_shape": features.shape[1:],
        "dtype": str(features.dtype),
        "created_by": "tests",
    }
    header = FeatureHeader(**{**metadata, **changes})  # type: ignore[arg-type]
    with ShardBuild(folder, header, ids, rows_per_shard=25) as build:
        for span in build.pending():
            here = slice(span.start, span.stop)
            errors = tuple("damaged" if row_id in failed else "" for row_id in ids[here])
            status = np.array([UNREADABLE if error else OK for error in errors], np.uint8)
            build.append(span.start, RowBlock(features[here], status, errors))
        build.publish()


class Tower(nn.Module):
    """Standardise, linear, batch norm, dropout: everything that a checkpoint must keep."""

    mean: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.layers = nn.Sequential(nn.Linear(inputs, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.layers(x - self.mean), dim=1)


def small_task(epochs: int, batch_size: int = 20, patience: int | None = None) -> TrainingTask:
    """Return a task that draws random numbers wherever one can."""

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        scores = net["image"](batch.images) @ net["caption"](batch.captions).T
        other = torch.randint(
            0, len(batch.images), (len(batch.image_of_caption),), generator=generator
        )
        row = torch.arange(len(batch.image_of_caption))
        return (0.3 + scores[other, row] - scores[batch.image_of_caption, row]).clamp_min(0).mean()

    def prepare(net: nn.ModuleDict, train: Pairs) -> None:
        mean, _ = mean_and_scale(train.images)
        net.get_buffer("image.mean").copy_(torch.from_numpy(mean))

    return TrainingTask(
        similarity="cosine",
        build=lambda words: nn.ModuleDict(
            {"image": Tower(IMAGE_DIM), "caption": Tower(CAPTION_DIM)}
        ),
        loss=loss,
        batches=lambda image_of_caption, rng: shuffled_captions(image_of_caption, batch_size, rng),
        optimiser=lambda net: torch.optim.Adam(net.parameters(), 0.02),
        rate=plateau(0.5, 1),
        epochs=epochs,
        clip=overall(2.0),
        patience=patience,
        prepare=prepare,
    )


def train_until(moment: str, work: Path, epochs: int) -> None:
    """Train `small_task` with checkpoints in a folder, and send SIGKILL to this process.

    `between` is after the second epoch, `within` in the third one, and `saving` just before the
    checkpoint appears.
    """
    task = small_task(epochs)

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    done = 0

    def progress(epochs_done: int, total: int, failed: int) -> None:
        nonlocal done
        done = epochs_done
        if moment == "between" and done == 2:
            kill()

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        if moment == "within" and done == 2:
            kill()
        return small_task(epochs).loss(net, batch, epoch, generator)

    if moment == "saving":
        replace = Path.replace

        def replaced(self: Path, target: Path) -> Path:
            if done == 2:
                kill()
            return replace(self, target)

        Path.replace = replaced  # type: ignore[method-assign, assignment]
    head = NetworkHead(TrainingTask(**{**vars(task), "loss": loss}), "small")
    head.fit(pairs(40), pairs(15, seed=1), FitOptions(0, progress, work))


THINGS, FILLERS, LENGTH, CHANNELS = 12, 5, 10, 8
VOCAB_SIZE = FIRST_WORD + THINGS + FILLERS
GRID = (3, 3, CHANNELS)

SEQUENCE = {
    "name": "made-words",
    "encoder": "sequence",
    "dim": LENGTH,
    "num_ids": VOCAB_SIZE,
    "layout": {"padding": "front"},
}
COUNTS = {"name": "made-counts", "encoder": "bow", "dim": VOCAB_SIZE}


def side(shape: tuple[int, ...], recipe: dict[str, Any]) -> FeatureSpec:
    """Return the spec of made features."""
    return FeatureSpec(shape, recipe, "0" * 16, "none")


def inputs_of_parts(images: tuple[int, ...], *parts: dict[str, Any]) -> HeadInputs:
    """Return the specs of images of a shape and of captions of one block or several."""
    joined = {"name": "made", "encoder": "concatenation", "parts": list(parts)}
    recipe = parts[0] if len(parts) == 1 else joined
    dim = sum(part["dim"] for part in parts)
    return HeadInputs(side(images, {"name": "made-image"}), side((dim,), recipe))


def grid_pairs(images: int, seed: int = 0) -> Pairs:
    """Return grids (3, 3, 8) with things in random cells, and front-padded token ids (10,)."""
    rng = np.random.default_rng(seed)
    codes = np.random.default_rng(99).standard_normal((THINGS, CHANNELS))
    grids = 0.2 * rng.standard_normal((images, 9, CHANNELS))
    sequences = np.zeros((images * 3, LENGTH), np.float32)
    for image in range(images):
        things = rng.choice(THINGS, 3, replace=False)
        grids[image, rng.choice(9, 3, replace=False)] += codes[things]
        for row in range(3 * image, 3 * image + 3):
            fillers = THINGS + rng.integers(0, FILLERS, rng.integers(0, 5))
            said = rng.permutation(np.concatenate([things, fillers]))
            sequences[row, LENGTH - len(said) :] = FIRST_WORD + said
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(3)),
        np.repeat(np.arange(images), 3),
        ArrayRows(grids.reshape(images, *GRID).astype(np.float32)),
        ArrayRows(sequences),
    )


def vector_pairs(images: int, *parts: dict[str, Any], seed: int = 0) -> Pairs:
    """Return vectors (8,) of at least 0, and captions of the parts `SEQUENCE` and `COUNTS`."""
    pairs = grid_pairs(images, seed)
    grids = pairs.images.take(np.arange(images))
    sequences = pairs.captions.take(np.arange(images * 3))
    counts = np.zeros((len(sequences), VOCAB_SIZE), np.float32)
    for row, sequence in zip(counts, sequences.astype(int), strict=True):
        np.add.at(row, sequence[sequence > 0], 1)
    columns: dict[str, Features] = {"sequence": sequences, "bow": counts}
    captions = np.concatenate([columns[part["encoder"]] for part in parts], axis=1)
    return Pairs(
        pairs.image_ids,
        pairs.caption_ids,
        pairs.image_of_caption,
        ArrayRows(np.maximum(grids, 0).mean(axis=(1, 2))),
        ArrayRows(captions),
    )


def inputs_of_one_model() -> HeadInputs:
    """Return specs of the two towers of one model, of six dimensions."""
    images = FeatureSpec((6,), {"name": "m.tag", "backbone": "m"}, "0" * 16, "r", "a" * 64)
    recipe = {"name": "m.tag", "encoder": "open-clip", "model": "m"}
    return HeadInputs(images, FeatureSpec((6,), recipe, "1" * 16, "r", "a" * 64))


def pairs_of_one_model(images: int, seed: int = 0) -> Pairs:
    """Return pairs of three captions an image, the same vectors (6,) on both sides."""
    rows = np.random.default_rng(seed).standard_normal((images, 6)).astype(np.float32)
    made = pairs(images, seed)
    captions = ArrayRows(rows[made.image_of_caption])
    return replace(made, images=ArrayRows(rows), captions=captions)
