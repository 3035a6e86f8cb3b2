"""Cost of loading training batches: features from shards against batches in memory.

Run as `python -m bench.train [IMAGES] [STEPS] [WORKERS]`; 4,096 numbers per image, five captions
each. For the two-branch network (300 numbers per caption) and the GRU of Qian & Lamberti 2018 (20
words per caption), with the settings of their papers, prints captions per second of training steps
with ready batches, and with batches from the data loader: from shards on disk and from rows in
memory, without and with workers; and the share of time spent waiting for a batch. The fastest step
counts, after one warm-up step.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, cycle, islice, repeat
from pathlib import Path

import numpy as np
import torch

from bench.record import recorded
from pipeline.datasets.entries import ImageEntry
from pipeline.heads.architectures import two_branch, vse
from pipeline.heads.inputs.batches import Batch, BatchLoader, PairDataset
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import Pairs, join_pairs
from pipeline.heads.training.task import TrainingTask
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import FeatureHeader, RowBlock

CAPTIONS, WORDS = 5, 5000


def write(folder: Path, ids: list[str], features: np.ndarray, **recipe: object) -> FeatureSet:
    """Write features as shards and open them."""
    header = FeatureHeader(
        {"name": "made", **recipe}, "none", "0" * 64, "row, dim", "made", features.shape[1:],
        str(features.dtype), "bench",
    )  # fmt: skip
    with ShardBuild(folder, header, ids) as build:
        for span in build.pending():
            rows = features[span.start : span.stop]
            ok = np.zeros(len(rows), np.uint8)
            build.append(span.start, RowBlock(rows, ok, ("",) * len(rows)))
        build.publish()
    return FeatureSet(folder)


def compare(
    name: str, task: TrainingTask, sources: dict[str, Pairs], steps: int, workers: int
) -> None:
    """Print captions per second with each source of batches."""
    torch.manual_seed(0)
    net = task.build(None).train()
    optimiser = task.optimiser(net)
    generator = torch.Generator()

    def seconds(batches: Iterator[Batch]) -> tuple[float, float]:
        started = time.perf_counter()
        batch = next(batches)
        there = time.perf_counter()
        optimiser.zero_grad()
        task.loss(net, batch, 0, generator).backward()
        optimiser.step()
        ended = time.perf_counter()
        return (there - started) / len(batch.captions), (ended - there) / len(batch.captions)

    def epochs(pairs: Pairs, number: int) -> Iterator[Batch]:
        rng = np.random.default_rng(0)
        loader = BatchLoader(
            PairDataset(pairs),
            lambda: ((0, rows) for rows in task.batches(pairs.image_of_caption, rng)),
            number,
            torch.device("cpu"),
        )
        return chain.from_iterable(repeat(loader))

    held = list(islice(epochs(sources["rows in memory"], 0), steps))
    ways: dict[str, Iterator[Batch]] = {"batches in memory": cycle(held)}
    for number in (0, workers):
        ways |= {f"{where}, {number} workers": epochs(p, number) for where, p in sources.items()}
    for way, batches in ways.items():
        seconds(batches)
        waiting, training = np.array([seconds(batches) for _ in range(steps)]).min(axis=0)
        total = waiting + training
        print(
            f"{name:10}  {way:26} {1 / total:8.1f} captions/s, {100 * waiting / total:5.2f} % of "
            "the time waiting for batches"
        )


@recorded
def main() -> None:
    """Generate features, then compare."""
    given = [int(argument) for argument in sys.argv[1:]]
    images, steps, workers = given + [4000, 6, 1][len(given) :]
    rng = np.random.default_rng(0)
    entries = [ImageEntry(f"{i:06d}", "x.jpg", "train", ("a",) * CAPTIONS) for i in range(images)]
    ids = [entry.id for entry in entries]
    caption_ids = [caption_id for entry in entries for caption_id in entry.caption_ids]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        seen = write(root / "i", ids, rng.standard_normal((images, 4096), np.float32))
        said = rng.standard_normal((len(caption_ids), 300), np.float32)
        means = write(root / "m", caption_ids, said, encoder="mean")
        numbers = rng.integers(4, WORDS, (len(caption_ids), 20)).astype(np.float32)
        words = write(
            root / "w", caption_ids, numbers, encoder="sequence", num_ids=WORDS,
            layout={"padding": "back"},
        )  # fmt: skip
        two = two_branch.TwoBranchSettings()
        gru = vse.VseSettings()
        for name, captions, task in (
            ("two-branch", means, two_branch.task(two, HeadInputs.of(seen, means))),
            ("GRU", words, vse.task(gru, HeadInputs.of(seen, words))),
        ):
            sources = {
                "shards": join_pairs(entries, seen, captions, in_memory=0),
                "rows in memory": join_pairs(entries, seen, captions),
            }
            compare(name, task, sources, steps, workers)


if __name__ == "__main__":
    main()
