"""Training cost of each head: epochs, updates, validation figures, seconds.

    python -m bench.rows data/flickr8k [NAME ...] [--timed 3]

Reads the heads below data/heads/DATASET that `pipeline run` trained at the small size. Each network
is trained again for a few epochs in a temporary folder on one thread; the CPU seconds of an epoch
after the first are multiplied by the number of epochs of the head, so that other programs matter
less. Closed-form and fine-tuned heads have no seconds per epoch.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from bench.record import OPTIONS, recorded
from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.base import settings_from
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.fit import fit
from pipeline.heads.head_types import head_kind
from pipeline.heads.trained_head import HEAD_FILE, TrainedHead, load_head, read_history
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.store.progress import Progress


class Clock:
    """A monitor that records the CPU time of every epoch."""

    def __init__(self) -> None:
        """Start without epochs."""
        self.seconds: list[float] = []

    def log(self, line: str) -> None:
        """Discard a line."""

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        """Record the time of epochs."""

        def note(done: int, total: int, failed: int) -> None:
            if unit == "epoch":
                self.seconds.append(time.process_time())

        yield note


@recorded
def main() -> None:
    """Print one row per head."""
    parser = argparse.ArgumentParser(parents=[OPTIONS])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--timed", type=int, default=3, help="Epochs, at least 2.")
    options = parser.parse_args()
    if options.timed < 2:
        parser.error("--timed needs 2 epochs or more: the first one is not counted")
    torch.set_num_threads(1)
    layout = Layout(options.dataset, options.dataset.parent)
    heads = layout.head("any").parent
    names = options.names or sorted(file.parent.name for file in heads.glob(f"*/{HEAD_FILE}"))
    print("| experiment | epochs, best | updates | last rsums of dev | CPU s an epoch | in all |")
    print("|---|---:|---:|---|---:|---:|")
    for name in names:
        print(row(layout, name, load_head(layout.head(name)), options.timed), flush=True)


def row(layout: Layout, name: str, trained: TrainedHead, timed: int) -> str:
    """Return the row of one head."""
    history = [
        entry
        for entry in read_history(layout.head(name), str(trained.tensors_sha256))
        if "rsum" in entry
    ]
    last = ", ".join(f"{entry['rsum']:.0f}" for entry in history[-5:])
    settings = settings_from(head_kind(trained.kind).settings, trained.settings, trained.kind)
    batch = getattr(settings, "batch_size", None)
    if batch is None:
        rsum = f"{trained.chosen['rsum']:.0f}" if "rsum" in trained.chosen else ""
        return f"| {name} | | | {rsum} | | |"
    entries = read_manifest(layout.dataset).select(trained.train_split)
    pairs = sum(len(entry.captions) for entry in entries)
    if getattr(settings, "epoch", "captions") == "images":
        pairs = len(entries)
    best, updates = int(trained.chosen["epoch"]), len(history) * math.ceil(pairs / batch)
    learnt = f"| {name} | {len(history)}, {best} | {updates:,} | {last} |"
    if trained.finetuning is not None:
        return f"{learnt} | |"
    seconds = epoch_seconds(layout, name, timed)
    return f"{learnt} {seconds:.1f} | {seconds * len(history):.0f} |"


def epoch_seconds(layout: Layout, name: str, timed: int) -> float:
    """Return the CPU seconds of an epoch after the first."""
    experiment = resolve_experiment(name)
    experiment = replace(experiment, word_vectors=layout.named_vectors(experiment.word_vectors))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        fit(
            layout.dataset,
            Path(folder) / "head",
            experiment=experiment,
            images=layout.features(experiment.images),
            captions=layout.text(experiment.captions.name),
            training=TrainingOptions(max_epochs=timed, monitor=clock),
        )
    first, *_, end = clock.seconds[-timed:]
    return (end - first) / (timed - 1)


if __name__ == "__main__":
    main()
