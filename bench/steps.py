"""CPU milliseconds per image of each step from an image file to a published shard.

    python -m bench.steps [--recipes NAME ...] [--precisions float32 bf16] [--images FOLDER ...]

The extraction loop runs with one compute thread and one reader thread, on images in the page cache.
Every step is a function of the loop, timed by the CPU clock of its thread, without the steps that
it calls; `rest` is the CPU time of the process outside all steps. A piece is written every few
rows, as in a run of hours. `bare` is only the network on windows in memory, by the same clock, so
that other programs matter little. The last line is a SHA-256 of the features, which an optimisation
must not change. Weights are seeded unless the recipe's own are installed.
"""

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from bench.decoding import FOLDERS
from bench.extract import publish_images
from bench.record import OPTIONS, recorded
from pipeline.images import batches, transforms
from pipeline.images.batches import Parallelism, default_parallelism, feature_header
from pipeline.images.decoding import decode
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import Weights, are_here, load_weights
from pipeline.store.builder import unfinished_shard
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards import reader, writer
from pipeline.store.shards.index import FeatureIndex

RECIPES = ("resnet152-grid", "vgg19-fc7-10crop", "efficientnet-lite0-pool")
# Images of a run, at several seconds each for ten crops.
COUNTS = {"vgg19-fc7-10crop": 12}
PIECES = 4
STEPS = (
    "read", "hash", "decode", "resize, crop", "batch", "convert", "forward", "pool, layout",
    "check rows", "checksums", "write",
)  # fmt: skip


class Meter:
    """CPU seconds of each step by thread, without nested steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._inner = threading.local()

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls timed as a step."""

        def call(*arguments: Any, **options: Any) -> Any:
            outer = getattr(self._inner, "seconds", 0.0)
            self._inner.seconds = 0.0
            started = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                passed = time.thread_time() - started
                with self._lock:
                    self.seconds[step] += passed - self._inner.seconds
                self._inner.seconds = outer + passed

        return call

    @contextmanager
    def metered(self, network: RecipeNetwork) -> Iterator[None]:
        """Time the steps of the extraction loop within the block."""
        targets: tuple[tuple[str, Any, str], ...] = (
            ("read", decode, "read_bytes"),
            ("hash", decode, "crc32"),
            ("decode", decode, "decoded_pixels"),
            ("resize, crop", transforms, "resize_image"),
            ("resize, crop", transforms, "cut_crops"),
            ("batch", batches, "_compute"),
            ("convert", network, "normalised"),
            ("forward", network, "_trunk"),
            ("pool, layout", network, "_rows"),
            ("check rows", writer, "stored_rows"),
            ("checksums", writer, "crc32"),
            ("checksums", reader, "crc32"),
            ("checksums", unfinished_shard, "finished_shard"),
            ("checksums", reader, "sha256_of_file"),
            ("checksums", unfinished_shard.ShardFile, "_check"),
            ("write", unfinished_shard, "write_shard"),
        )
        with ExitStack() as patches:
            for step, owner, name in targets:
                function = self.timed(step, getattr(owner, name))
                patches.enter_context(patch.object(owner, name, function))
            yield


@dataclass(frozen=True)
class Costs:
    """CPU milliseconds per image by step, and of only the network; and the index of the set."""

    steps: dict[str, float]
    bare: float
    index: FeatureIndex


def measured(recipe: Recipe, weights: Weights, paths: list[Path], folder: Path) -> Costs:
    """Extract some images, and run only the network on as many."""
    network = RecipeNetwork(recipe, weights.state)
    parallelism = Parallelism(default_parallelism(recipe, "cpu").batch_size, 1, 1)
    bare_ms = bare(network, paths, parallelism.batch_size)
    ids = [f"{number}-{path.name}" for number, path in enumerate(paths)]
    piece = max(1, len(paths) // PIECES) * recipe.row_bytes
    meter, started = Meter(), time.process_time()
    with (
        meter.metered(network),
        patch.object(unfinished_shard, "FLUSH_BYTES", piece),
        ShardBuild(folder, feature_header(recipe, weights, "bench"), ids) as build,
    ):
        index = publish_images(build, paths, network, parallelism)
    total = time.process_time() - started
    seconds = {step: meter.seconds[step] for step in STEPS}
    seconds |= {"rest": total - sum(seconds.values()), "total": total}
    return Costs(
        {step: 1e3 * value / len(paths) for step, value in seconds.items()}, bare_ms, index
    )


def bare(network: RecipeNetwork, paths: list[Path], size: int) -> float:
    """Return CPU milliseconds per image of the network on windows in memory."""
    samples = [read_sample(path, network.recipe, network.window).windows for path in paths[:size]]
    windows = np.stack([sample for sample in samples if sample is not None])
    batch = torch.from_numpy(np.resize(windows, (size, *windows.shape[1:])))
    network(batch)
    count, started = max(2, len(paths) // size), time.process_time()
    for _ in range(count):
        network(batch)
    return 1e3 * (time.process_time() - started) / (count * size)


def report(columns: dict[str, Costs]) -> None:
    """Print the table of all recipes and precisions."""
    width = max(map(len, columns))
    print(f"{'ms per image':14}" + "".join(f"  {name:>{width}}" for name in columns))
    for step in (*STEPS, "rest", "total"):
        print(f"{step:14}" + "".join(f"  {c.steps[step]:{width}.3f}" for c in columns.values()))
    print(f"{'bare':14}" + "".join(f"  {c.bare:{width}.3f}" for c in columns.values()))
    ratios = (c.bare / c.steps["total"] for c in columns.values())
    print(f"{'bare / total':14}" + "".join(f"  {ratio:{width}.3f}" for ratio in ratios))
    for name, costs in columns.items():
        digests = ", ".join(shard.content_sha256[:16] for shard in costs.index.shards)
        print(f"{name}: {costs.index.rows} images, SHA-256 of their features {digests}")


@recorded
def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    parser.add_argument("--images", type=Path, nargs="+", default=FOLDERS, help="Of JPEG files.")
    parser.add_argument("--count", type=int, help="Images, taken in turn.  [default: 48; 12]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [path for folder in options.images for path in sorted(folder.glob("*.jp*g"))]
    if not found:
        parser.error(f"no JPEG files in {', '.join(map(str, options.images))}")
    columns = {}
    for name in options.recipes:
        count = options.count or COUNTS.get(name, 48)
        paths = [found[number % len(found)] for number in range(count)]
        for path in paths:
            path.read_bytes()
        for precision in options.precisions:
            recipe = resolve_recipe(name, precision)
            weights = load_weights(recipe, "imagenet" if are_here(recipe) else "random:0")
            with tempfile.TemporaryDirectory() as folder:
                costs = measured(recipe, weights, paths, Path(folder, "set"))
            columns[f"{name.split('-')[0]} {precision}"] = costs
    report(columns)


if __name__ == "__main__":
    main()
