"""All GPU tables in less than ten minutes: extraction, training, two workers, tests.

    python -m bench.gpu all --images FOLDER
    python -m bench.gpu extract --recipes resnet152-grid --images FOLDER

extract : images per second in float32, TF32, bf16 and fp16 on one card. `bare` is only the network,
    on windows in GPU memory; `ours` is the extraction loop from files in the page cache to
    published shards, from the first finished batch on; `read` is only reading, decoding and
    resizing, an upper bound. `difference` is the largest difference of a feature from float32,
    relative to the largest float32 feature. Weights are seeded unless specified.
train   : captions per second of a two-branch head, and images per second of fine-tuning.
workers : the same extraction in one process and on two workers of the card; the content must be
    equal.
tests   : the tests that need a card.
all     : all four.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import torch

from bench.decoding import FOLDERS
from bench.extract import publish_images, rate
from bench.finetuning import step_of
from bench.train import CAPTIONS, write
from pipeline.cluster.place import Place
from pipeline.datasets.entries import ImageEntry
from pipeline.finetuning.network import LearningNetwork
from pipeline.heads.architectures import two_branch
from pipeline.heads.inputs.batches import BatchLoader, PairDataset
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import join_pairs
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.batches import default_parallelism, feature_header
from pipeline.images.extract import extract
from pipeline.images.network import RecipeNetwork
from pipeline.images.transforms import read_sample
from pipeline.images.weights import Weights, load_weights
from pipeline.jobs.options import Compute, Storage
from pipeline.recipes import PRECISIONS, Recipe, resolve_recipe
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.resume.feature_build import ShardBuild

RECIPES = (
    "resnet152-grid", "resnet152-pool", "vgg19-fc7-10crop", "timm:resnet50",
    "timm:vit_base_patch16_224",
)  # fmt: skip
TESTS = ("tests/test_gpu.py", "tests/test_devices.py")


def extraction(options: argparse.Namespace) -> None:
    """Print images per second of every recipe and precision."""
    print(f"\n{'recipe':26} precision   read/s   bare/s   ours/s  ours/bare  difference")
    for name in options.recipes:
        weights = load_weights(resolve_recipe(name), options.weights)
        windows = resolve_recipe(name).crop.windows
        paths = options.paths[: max(2, len(options.paths) // windows)]
        first: np.ndarray | None = None
        for precision in options.precisions:
            if precision == "tf32" and not options.on_gpu:
                print(f"{name:26} {precision:9}  needs a CUDA device")
                continue
            recipe = resolve_recipe(name, precision)
            read, bare, ours, features = measured(recipe, weights, paths, options)
            first = features if first is None else first
            difference = np.abs(features - first).max() / np.abs(first).max()
            print(
                f"{name:26} {precision:9} {read:8.1f} {bare:8.1f} {ours:8.1f}  {ours / bare:9.2f}  "
                f"{difference:.1e}",
                flush=True,
            )


def measured(
    recipe: Recipe, weights: Weights, paths: list[Path], options: argparse.Namespace
) -> tuple[float, float, float, np.ndarray]:
    """Return images per second, read, bare and ours, and the features of the first images."""
    parallelism = default_parallelism(recipe, options.device)
    cores = len(os.sched_getaffinity(0))
    parallelism = replace(
        parallelism,
        batch_size=options.batch_size or parallelism.batch_size,
        readers=options.readers or min(16, cores),
    )
    network = RecipeNetwork(recipe, weights.state, options.device)
    bare = bare_rate(network, paths, parallelism.batch_size)
    read = reading_rate(network, paths, parallelism.readers)
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
    return read, bare, rate(marks), features.astype(np.float32)


def reading_rate(network: RecipeNetwork, paths: list[Path], readers: int) -> float:
    """Return images per second of reading, decoding and resizing with all readers."""
    some, started = paths[:512], time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        list(pool.map(lambda path: read_sample(path, network.recipe, network.window), some))
    return len(some) / (time.perf_counter() - started)


@torch.inference_mode()
def bare_rate(network: RecipeNetwork, paths: list[Path], batch_size: int) -> float:
    """Return images per second of the network on windows that are on its device."""
    samples = [read_sample(path, network.recipe, network.window).windows for path in paths[:16]]
    sound = np.stack([windows for windows in samples if windows is not None])
    batch = torch.from_numpy(np.resize(sound, (batch_size, *sound.shape[1:]))).to(network.device)
    steps = max(2, min(50, len(paths) // batch_size))
    return batch_size / seconds_of(lambda: network._rows(batch), network.device, steps)


def seconds_of(step: Callable[[], object], device: torch.device, times: int) -> float:
    """Return the mean seconds of a step, after two warm-up steps."""

    def run(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    run(2)
    return run(times) / times


def training(options: argparse.Namespace) -> None:
    """Print captions per second of a head, and images per second of fine-tuning."""
    device, images = torch.device(options.device), min(4000, 40 * options.count)
    rng = np.random.default_rng(0)
    entries = [ImageEntry(f"{i:06d}", "x.jpg", "train", ("a",) * CAPTIONS) for i in range(images)]
    caption_ids = [caption_id for entry in entries for caption_id in entry.caption_ids]
    with tempfile.TemporaryDirectory() as folder:
        rows = rng.standard_normal((images, 4096), np.float32)
        seen = write(Path(folder, "i"), [entry.id for entry in entries], rows)
        rows = rng.standard_normal((len(caption_ids), 300), np.float32)
        said = write(Path(folder, "m"), caption_ids, rows, encoder="mean")
        task = two_branch.task(two_branch.TwoBranchSettings(), HeadInputs.of(seen, said))
        net = task.build(None).to(device).train()
        optimiser, generator = task.optimiser(net), torch.Generator()
        pairs = join_pairs(entries, seen, said)
        loader = BatchLoader(
            PairDataset(pairs),
            lambda: ((0, rows) for rows in task.batches(pairs.image_of_caption, rng)),
            0,
            device,
        )
        batches, size = chain.from_iterable(repeat(loader)), 0

        def step() -> None:
            nonlocal size
            batch = next(batches)
            size = len(batch.captions)
            optimiser.zero_grad()
            task.loss(net, batch, 0, generator).backward()
            optimiser.step()

        seconds = seconds_of(step, device, options.steps)
    print(f"\ntwo-branch head, {4096} and {300} numbers: {size / seconds:.0f} captions/s")
    name = options.finetune
    recipe = resolve_recipe(name)
    backbone = backbone_named(recipe.backbone)
    state = load_weights(recipe, "random:0").state
    size = options.batch_size or 128
    windows = torch.rand(size, recipe.crop.size, recipe.crop.size, 3).to(device) * 255
    for precision in ("float32", "bf16"):
        network = LearningNetwork(recipe, backbone, state, "", precision).to(device).train()
        seconds = seconds_of(step_of(network, windows), device, options.steps)
        print(f"fine-tuning {name}, all layers, {precision}: {size / seconds:.1f} images/s")


def two_workers(options: argparse.Namespace) -> None:
    """Print images per second in one process and on two workers that share the device."""
    name, contents = options.recipes[0], {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "images")
        folder.mkdir()
        for number, path in enumerate(options.paths):
            shutil.copyfile(path, folder / f"{number:06d}{path.suffix}")
        compute = Compute(options.weights, device=options.device, batch_size=options.batch_size)
        storage = Storage(rows_per_shard=max(1, len(options.paths) // 4))
        for workers in (None, 2):
            started = time.perf_counter()
            index = extract(
                folder, Path(scratch, f"out-{workers}"), recipe=name, compute=compute,
                storage=storage, place=Place(workers),
            )  # fmt: skip
            seconds = time.perf_counter() - started
            contents[workers] = index.content_sha256
            where = f"{workers} workers" if workers else "one process"
            print(f"{name}, {where}: {index.rows / seconds:.1f} images/s, start-up included")
    print(f"content {'the same' if contents[None] == contents[2] else 'DIFFERS'}")


def tests(options: argparse.Namespace) -> None:
    """Run the tests that need a card; exit with their status if they fail."""
    command = [sys.executable, "-m", "pytest", "-rs", *TESTS]
    environment = {**os.environ, "GPU_TESTS_DEVICE": options.device}
    if status := subprocess.run(command, env=environment).returncode:
        sys.exit(status)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "extract": extraction,
    "train": training,
    "workers": two_workers,
    "tests": tests,
}


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=["all", *PARTS], nargs="?", default="all")
    parser.add_argument("--images", type=Path, nargs="+", default=FOLDERS, help="Of JPEG files.")
    parser.add_argument("--count", type=int, default=2048, help="Images, taken in turn.")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--finetune", default="timm:resnet50", help="A recipe of pooled rows.")
    parser.add_argument("--weights", default="random:0", help="As `pipeline extract` accepts them.")
    parser.add_argument("--device", default="cuda", help="cpu only tries the program.")
    parser.add_argument("--batch-size", type=int, help="[default: that of `pipeline extract`]")
    parser.add_argument("--readers", type=int, help="[default: cores, at most 16]")
    parser.add_argument("--steps", type=int, default=50, help="Of training.")
    options = parser.parse_args()
    options.on_gpu = torch.device(options.device).type == "cuda"
    if options.on_gpu and not torch.cuda.is_available():
        sys.exit(
            "torch finds no CUDA device; run this on a machine with one, or use --device cpu "
            "with a small --count to try the program"
        )
    found = [path for folder in options.images for path in sorted(folder.glob("*.jp*g"))]
    if not found:
        sys.exit(f"no JPEG files in {', '.join(map(str, options.images))}")
    options.paths = [found[number % len(found)] for number in range(options.count)]
    for path in set(options.paths):
        path.read_bytes()
    card = torch.cuda.get_device_name() if options.on_gpu else "CPU"
    cores, started = len(os.sched_getaffinity(0)), time.perf_counter()
    print(f"{card}, torch {torch.__version__}, {cores} cores, {options.count} images")
    for name, part in PARTS.items():
        if options.part in ("all", name):
            part(options)
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
