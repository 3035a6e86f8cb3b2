"""Training next to a busy program: our threads against torch's defaults.

    python -m bench.threads

Each experiment is trained on random data of the size of the default scenes, in a separate process:

- ours: number of threads by network size, sleeping while idle (`pipeline/__init__.py`)
- asleep: one thread per core, sleeping while idle
- torch: one thread per core, spinning while idle, the default of torch and OpenMP

Prints the seconds per epoch (median; for a closed-form head, per fit), alone and next to one
endless loop per core, and their ratio. The first line is the fair baseline: a Python loop that
waits for nothing, slowed down only by its share of the cores, and by what two cores share if they
are hyperthreads of one.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bench.record import OPTIONS, recorded
from pipeline.heads.base import FitOptions
from pipeline.heads.experiments import Size, resolve_experiment
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.training import trainer

IMAGES, HELD_OUT, CAPTIONS, EPOCHS = 400, 100, 5, 5
IMAGE_DIM, WORDS, LENGTH, CAPTION_DIM = 1280, 300, 14, 1000
TOKEN_IDS = {
    "encoder": "sequence",
    "dim": LENGTH,
    "num_ids": WORDS,
    "layout": {"padding": "back"},
}
NETWORKS: dict[str, tuple[str, Size, bool]] = {
    "GRU": ("ours-gru", "tiny", True),
    "two-branch": ("wang2016-nonlinear-bidirectional-structure", "tiny", False),
    "two-branch, larger": ("wang2016-nonlinear-bidirectional-structure", "small", False),
    "CCA": ("wang2016-cca", "tiny", False),
}
"""Name -> an experiment, its size, and whether its captions are token ids."""

WAYS = ("ours", "asleep", "torch")


@recorded
def main() -> None:
    """Measure all experiments, or run one requested training."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    options = parser.parse_args()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "OPENBLAS_"))}
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; seconds alone, compared with {cores} busy loops, and their ratio")
    print(line("fair", "", [timed(lambda: sum(range(20_000_000)), loops) for loops in (0, cores)]))
    for network in options.networks:
        for way in WAYS:
            # torch reads the environment when it is loaded: here before the package has set it.
            first = "import torch; " if way == "torch" else ""
            program = f"{first}from bench.threads import train; train({network!r}, {way!r})"
            ended = subprocess.run(
                [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True
            )
            print(line(network, way, [float(seconds) for seconds in ended.stdout.split()]))


def line(network: str, way: str, seconds: Sequence[float]) -> str:
    """Return a line of the table."""
    alone, beside = seconds
    return f"{network:20} {way:8} {alone:7.3f} {beside:7.3f} {beside / alone:6.2f}"


def timed(work: Callable[[], object], loops: int) -> float:
    """Return the median seconds of some work next to a number of busy loops."""
    ends = [time.perf_counter()]
    with busy(loops):
        for _ in range(EPOCHS):
            work()
            ends.append(time.perf_counter())
    return float(np.median(np.diff(ends)))


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep a number of cores busy."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def train(network: str, way: str) -> None:
    """Train alone and next to busy loops, and print the seconds per epoch."""
    name, size, words = NETWORKS[network]
    experiment = resolve_experiment(name, size=size)
    closed = experiment.head == "cca"
    settings = {**experiment.settings, **({} if closed else {"epochs": EPOCHS})}
    if way != "ours":
        trainer._WEIGHTS_A_THREAD = 1
    captions = TOKEN_IDS if words else {"encoder": "mean", "dim": CAPTION_DIM}
    dim = LENGTH if words else CAPTION_DIM
    inputs = HeadInputs(
        FeatureSpec((IMAGE_DIM,), {"name": "drawn"}, "0" * 16, "none"),
        FeatureSpec((dim,), {"name": "drawn", **captions}, "1" * 16, "none"),
    )
    splits = drawn(IMAGES, words, 0), drawn(HELD_OUT, words, 1)
    ends: list[float] = []

    def progress(done: int, total: int, failed: int) -> None:
        ends.append(time.perf_counter())

    def fit() -> None:
        make_head(experiment.head, settings, inputs).fit(*splits, FitOptions(0, progress))

    for loops in (0, len(os.sched_getaffinity(0))):
        if closed:
            print(timed(fit, loops))
            continue
        ends.clear()
        with busy(loops):
            fit()
        print(float(np.median(np.diff(ends)[1:])))


def drawn(images: int, words: bool, seed: int) -> Pairs:
    """Return random pairs: captions as noisy copies of their image, or random words."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((images, IMAGE_DIM), np.float32)
    rows = np.repeat(np.arange(images), CAPTIONS)
    if words:
        said = rng.integers(4, WORDS, (len(rows), LENGTH)).astype(np.float32)
    else:
        noise = rng.standard_normal((len(rows), CAPTION_DIM), np.float32)
        said = seen[rows, :CAPTION_DIM] + noise
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(CAPTIONS)),
        rows,
        ArrayRows(seen),
        ArrayRows(said),
    )


if __name__ == "__main__":
    main()
