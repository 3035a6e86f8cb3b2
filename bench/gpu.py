"""Images a second on a GPU, from JPEG files to shards, compared with the bare forward pass.

    python -m bench.gpu --images FOLDER

For ResNet-152's grid and VGG-19's ten crops, in float32, TF32, bf16 and fp16 on the same card:
`bare` is the network alone on windows in the card's memory; `ours` is the extraction loop
from the files, in the page cache, to published shards, counted from the first finished batch.
`difference` is the largest difference of a feature from float32's, relative to the largest
float32 feature. Weights are seeded unless given, as rates do not depend on them; differences do.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bench.extract import publish_images, rate
from pipeline.images.batches import default_parallelism, feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import read_sample
from pipeline.images.weights import Weights, load_weights
from pipeline.recipes import PRECISIONS, Recipe, resolve_recipe
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.resume.feature_build import ShardBuild

RECIPES = ("resnet152-grid", "vgg19-fc7-10crop")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--count", type=int, default=4096, help="images, taken in turn")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--weights", default="random:0", help="as in `pipeline extract`")
    parser.add_argument("--device", default="cuda", help="cpu only tries the program")
    parser.add_argument("--batch-size", type=int, help="default: that of `pipeline extract`")
    parser.add_argument("--readers", type=int, help="default: cores, at most 16")
    arguments = parser.parse_args()
    on_gpu = torch.device(arguments.device).type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        sys.exit(
            "no CUDA device is here, so there is nothing to measure; run this on a machine with "
            "one, or use --device cpu with a small --count to try the program"
        )
    found = sorted(arguments.images.glob("*.jp*g"))
    if not found:
        sys.exit(f"{arguments.images} has no JPEG files")
    paths = [found[i % len(found)] for i in range(arguments.count)]
    for path in set(paths):
        path.read_bytes()
    card = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{card}, torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, {len(paths)}")
    print("recipe              precision  bare/s   ours/s  ours/bare  difference")
    for name in arguments.recipes:
        weights = load_weights(resolve_recipe(name), arguments.weights)
        first: np.ndarray | None = None
        for precision in PRECISIONS:
            if precision == "tf32" and not on_gpu:
                print(f"{name:19} {precision:9}  needs a CUDA device")
                continue
            recipe = resolve_recipe(name, precision)
            bare, ours, features = measured(recipe, weights, paths, arguments)
            first = features if first is None else first
            difference = np.abs(features - first).max() / np.abs(first).max()
            ratio = ours / bare
            print(
                f"{name:19} {precision:9} {bare:7.1f}  {ours:7.1f}  {ratio:9.2f}  {difference:.1e}"
            )


def measured(
    recipe: Recipe, weights: Weights, paths: list[Path], arguments: argparse.Namespace
) -> tuple[float, float, np.ndarray]:
    """Return images a second, bare and ours, and the features of the first images."""
    parallelism = default_parallelism(recipe, arguments.device)
    cores = len(os.sched_getaffinity(0))
    parallelism = replace(
        parallelism,
        batch_size=arguments.batch_size or parallelism.batch_size,
        readers=arguments.readers or min(16, cores),
    )
    network = RecipeNetwork(recipe, weights.state, arguments.device)
    bare = bare_rate(network, paths, parallelism.batch_size)
    marks: list[tuple[float, int]] = []

    def mark(done: int, total: int, failed: int) -> None:
        if done:
            marks.append((time.perf_counter(), done))

    ids = [f"{number}-{path.name}" for number, path in enumerate(paths)]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out")
        with ShardBuild(out, feature_header(recipe, weights, "bench"), ids) as build:
            publish_images(build, paths, network, parallelism, mark)
        marks.append((time.perf_counter(), len(paths)))
        features = FeatureSet(out).read(ids[:64])
    return bare, rate(marks), features


@torch.inference_mode()
def bare_rate(network: RecipeNetwork, paths: list[Path], batch_size: int) -> float:
    """Return the network's images a second on windows that are on its device already."""
    samples = [read_sample(path, network.recipe, network.window).windows for path in paths[:16]]
    sound = np.stack([windows for windows in samples if windows is not None])
    batch = torch.from_numpy(np.resize(sound, (batch_size, *sound.shape[1:]))).to(network.device)
    steps = max(2, min(50, len(paths) // batch_size))

    def run(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            network._rows(batch)
        if network.device.type == "cuda":
            torch.cuda.synchronize(network.device)
        return time.perf_counter() - started

    run(2)
    return steps * batch_size / run(steps)


if __name__ == "__main__":
    main()
