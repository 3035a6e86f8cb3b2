"""Made pairs whose captions describe their images through a fixed random map, with noise.

As a program: made.py FOLDER EPOCHS. For each of `MOMENTS` a process trains `small_design` with
checkpoints in FOLDER/MOMENT and sends itself SIGKILL: `between` after the second epoch, `within`
the third one, or `saving` just before its checkpoint appears.
"""

import os
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.clipping import overall
from pipeline.heads.design import Batch, Design
from pipeline.heads.inputs import Inputs, Side
from pipeline.heads.interface import Head, Run
from pipeline.heads.network import NetworkHead
from pipeline.heads.pairs import Pairs
from pipeline.heads.rows import ArrayRows, Features, Rows
from pipeline.heads.sampling import shuffled_captions
from pipeline.heads.scaling import mean_and_scale
from pipeline.heads.schedules import plateau
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table
from pipeline.shards.build import ShardBuild
from pipeline.shards.format import OK, UNREADABLE, FeatureHeader, RowBlock

IMAGE_DIM, CAPTION_DIM = 12, 8
MOMENTS = ("between", "within", "saving")


def inputs(
    images: tuple[int, ...] = (IMAGE_DIM,), captions: tuple[int, ...] = (CAPTION_DIM,)
) -> Inputs:
    """Return facts of features of these shapes."""
    return Inputs(
        Side(images, {"name": "i"}, "0" * 16, "none"),
        Side(captions, {"name": "c", "encoder": "mean"}, "1" * 16, "none"),
    )


def pairs(images: int, seed: int = 0, captions: int = 3, noise: float = 0.3) -> Pairs:
    """Return pairs with image features (n, 12) and caption features (c, 8)."""
    world = np.random.default_rng(99)
    to_image = world.standard_normal((6, IMAGE_DIM))
    to_caption = world.standard_normal((6, CAPTION_DIM))
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((images, 6))
    owner = np.repeat(np.arange(images), captions)
    said = meaning[owner] + noise * rng.standard_normal((len(owner), 6))
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(captions)),
        owner,
        ArrayRows((meaning @ to_image).astype(np.float32)),
        ArrayRows((said @ to_caption).astype(np.float32)),
    )


def all_of(rows: Rows) -> Features:
    """Return all rows."""
    return rows.take(np.arange(len(rows)))


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


def entries_of(made: Pairs) -> tuple[ImageEntry, ...]:
    """Return the manifest's entries of made pairs."""
    counts = np.bincount(made.owner)
    return tuple(
        ImageEntry(one, f"{one}.jpg", "train", ("a caption",) * count)
        for one, count in zip(made.image_ids, counts, strict=True)
    )


def write_features(
    folder: Path,
    ids: Sequence[str],
    features: Features,
    failed: Collection[str] = (),
    **changes: object,
) -> None:
    """Write features as shards of 25 rows, of the recipe {"name": "made"} unless changed."""
    facts: dict[str, object] = {
        "recipe": {"name": "made"},
        "weights": "none",
        "weights_sha256": "0" * 64,
        "axes": "row, dim",
        "dataset": "made",
        "row_shape": features.shape[1:],
        "dtype": str(features.dtype),
        "created_by": "tests",
    }
    header = FeatureHeader(**{**facts, **changes})  # type: ignore[arg-type]
    with ShardBuild(folder, header, ids, rows_per_shard=25) as build:
        for span in build.pending():
            here = slice(span.start, span.stop)
            errors = tuple("damaged" if one in failed else "" for one in ids[here])
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


def small_design(epochs: int, batch_size: int = 20, patience: int | None = None) -> Design:
    """Return a design that draws random numbers wherever one can."""

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        scores = net["image"](batch.images) @ net["caption"](batch.captions).T
        other = torch.randint(0, len(batch.images), (len(batch.owner),), generator=generator)
        row = torch.arange(len(batch.owner))
        return (0.3 + scores[other, row] - scores[batch.owner, row]).clamp_min(0).mean()

    def prepare(net: nn.ModuleDict, train: Pairs) -> None:
        mean, _ = mean_and_scale(train.images)
        net.get_buffer("image.mean").copy_(torch.from_numpy(mean))

    return Design(
        similarity="cosine",
        build=lambda words: nn.ModuleDict(
            {"image": Tower(IMAGE_DIM), "caption": Tower(CAPTION_DIM)}
        ),
        loss=loss,
        batches=lambda owner, rng: shuffled_captions(owner, batch_size, rng),
        optimiser=lambda net: torch.optim.Adam(net.parameters(), 0.02),
        rate=plateau(0.5, 1),
        epochs=epochs,
        clip=overall(2.0),
        patience=patience,
        prepare=prepare,
    )


def _train_until(moment: str, work: Path, epochs: int) -> None:
    design = small_design(epochs)

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
        return small_design(epochs).loss(net, batch, epoch, generator)

    if moment == "saving":
        replace = Path.replace

        def replaced(self: Path, target: Path) -> Path:
            if done == 2:
                kill()
            return replace(self, target)

        Path.replace = replaced  # type: ignore[method-assign, assignment]
    head = NetworkHead(Design(**{**vars(design), "loss": loss}), "small")
    head.fit(pairs(40), pairs(15, seed=1), Run(0, progress, work))


def _main() -> None:
    folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    # What torch imports late is imported once; starting it takes longer than all else.
    design = small_design(epochs)
    design.optimiser(design.build(None))
    for moment in MOMENTS:
        work = folder / moment
        work.mkdir()
        if (child := os.fork()) == 0:
            _train_until(moment, work, epochs)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"{moment}: not killed")


if __name__ == "__main__":
    _main()
