"""All GPU tables in ten minutes: extraction, training, ranks, captions, two workers, tests.

    python -m bench.gpu all --images FOLDER
    python -m bench.gpu extract --recipes resnet152-grid --images FOLDER
    python -m bench.gpu train rank caption

extract : images per second in float32, TF32, bf16 and fp16 on one card. `timm` is timm's network of
    the same name, channels-last, in the same precision, at the faster of batches of 128 and 256, as
    its benchmark measures it; `bare` is only our network, on windows in GPU memory; `copied` is the
    same with copies of windows to the card and of rows back, one batch after another; `ours` is the
    extraction loop from files in the page cache to published shards, from the first finished
    batch on; `read` is only reading, decoding and resizing, an upper bound. `of bound` is `ours`
    relative to the smaller of `bare` and `read`; `difference` is the largest difference of a
    feature from float32, relative to the largest float32 feature. Weights are seeded unless
    specified. Every rate is measured for about `--seconds`.
train   : captions per second of a two-branch head, and images per second of fine-tuning, both in
    float32 and bf16, and on the CPU in float32.
rank    : seconds of exact ranks of `--ranked` images and five times as many captions, and pairs per
    second on the CPU, of a part; its ranks must be equal.
caption : sentences per second of three decoders, and on the CPU.
workers : the same extraction in one process and on two workers of the card; the content must be
    equal.
tests   : the tests that need a card; `make test` there includes them.
all     : all six. An error ends one row or part, is printed, and sets the exit status.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from bench.decoding import FOLDERS
from bench.extract import publish_images, rate
from bench.gpu_rates import captioning, ranking, seconds_of, training
from bench.record import OPTIONS, recorded
from pipeline.images.batches import Parallelism, default_parallelism, feature_header, reader_of
from pipeline.images.extract import extract
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import PRECISIONS, Recipe, resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import Weights, load_weights
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.workers.place import Place

RECIPES = (
    "resnet152-grid", "resnet152-pool", "vgg19-fc7-10crop", "timm:resnet50",
    "timm:vit_base_patch16_224",
)  # fmt: skip
# Many: while the last one is written, nothing else runs.
_SHARDS = 16
TESTS = ("tests/test_gpu.py", "tests/store/test_devices.py")


def extraction(options: argparse.Namespace) -> None:
    """Print images per second of every recipe and precision."""
    names = ("timm/s", "bare/s", "copied/s", "read/s", "ours/s")
    rates = " ".join(f"{name:>8}" for name in names)
    print(f"\n{'recipe':26} precision {rates} bare/timm ours/bare of bound difference")
    for name in options.recipes:
        with reported(options, name):
            one_recipe(name, options)


def one_recipe(name: str, options: argparse.Namespace) -> None:
    """Print images per second of a recipe in every precision."""
    weights = load_weights(resolve_recipe(name), options.weights)
    first: np.ndarray | None = None
    read = 0.0
    for precision in options.precisions:
        if precision == "tf32" and not options.on_gpu:
            print(f"{name:26} {precision:9}  needs a CUDA device")
            continue
        with reported(options, f"{name} {precision}"):
            recipe = resolve_recipe(name, precision)
            found, features = measured(recipe, weights, options, read)
            read = found["read"]
            first = features if first is None else first
            both = min(len(first), len(features))
            difference = np.abs(features[:both] - first[:both]).max() / np.abs(first).max()
            bound = min(found["bare"], found["read"])
            print(
                f"{name:26} {precision:9} {' '.join(f'{rate:8.1f}' for rate in found.values())} "
                f"{found['bare'] / found['timm']:9.2f} {found['ours'] / found['bare']:9.2f} "
                f"{found['ours'] / bound:8.2f} {difference:10.1e}",
                flush=True,
            )


def measured(
    recipe: Recipe, weights: Weights, options: argparse.Namespace, read: float
) -> tuple[dict[str, float], np.ndarray]:
    """Return images per second by column, and features of the first images.

    Reading does not depend on the precision: `read` is its rate, or 0 to measure it.
    """
    parallelism = default_parallelism(recipe, options.device)
    parallelism = replace(
        parallelism,
        batch_size=options.batch_size or parallelism.batch_size,
        readers=options.readers or parallelism.readers,
    )
    found = {"timm": timm_rate(recipe, options)}
    network = RecipeNetwork(recipe, weights.state, options.device)
    found["bare"], found["copied"] = bare_rates(network, parallelism.batch_size, options)
    rows = min(found["bare"] * options.seconds, options.count)
    batches = max(2, int(rows) // parallelism.batch_size)
    paths = [path for path, _ in zip(cycle(options.paths), range(batches * parallelism.batch_size))]
    marks: list[tuple[float, int]] = []

    def mark(done: int, total: int, failed: int) -> None:
        if done:
            marks.append((time.perf_counter(), done))

    ids = [f"{number}-{path.name}" for number, path in enumerate(paths)]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out")
        size = -(-len(ids) // _SHARDS)
        with ShardBuild(out, feature_header(recipe, weights, "bench"), ids, size) as build:
            publish_images(build, paths, network, parallelism, mark)
        marks.append((time.perf_counter(), len(paths)))
        features = FeatureSet(out).read(ids[:64])
    found["read"] = read or reading_rate(network, paths, parallelism)
    found["ours"] = rate(marks)
    return found, features.astype(np.float32)


@torch.inference_mode()
def timm_rate(recipe: Recipe, options: argparse.Namespace) -> float:
    """Return images per second of timm's network of a recipe, without the recipe's other steps."""
    name = recipe.backbone.removeprefix("timm:")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(recipe.precision, torch.float32)
    device, layout = torch.device(options.device), torch.channels_last
    net = deepcopy(timm_network(name)).to(device, dtype).to(memory_format=layout)
    tf32 = recipe.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    size, rates = recipe.crop.size, []
    for batch_size in (128, 256) if options.on_gpu else (2,):
        x = torch.randn(batch_size, 3, size, size, device=device, dtype=dtype)
        x = x.contiguous(memory_format=layout)
        seconds = seconds_of(partial(net, x), device, options.seconds / 2)
        rates.append(batch_size / seconds / recipe.crop.windows)
    return max(rates)


@lru_cache(maxsize=1)
def timm_network(name: str) -> torch.nn.Module:
    """Return timm's network of a name, with random weights."""
    import timm

    return timm.create_model(name).eval()


def reading_rate(network: RecipeNetwork, paths: list[Path], parallelism: Parallelism) -> float:
    """Return images per second of reading, decoding and resizing on all cores."""
    together, read = reader_of(network, len(paths), parallelism)
    some = paths[:4096]
    parts = [some[start : start + together] for start in range(0, len(some), together)]
    readers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(readers) as pool:

        def run(some_parts: list[list[Path]]) -> float:
            started = time.perf_counter()
            for _ in pool.map(lambda part: len(read(part, Stopwatch())), some_parts):
                pass
            return time.perf_counter() - started

        run(parts[: 2 * readers])  # starts the processes
        return len(some) / run(parts)


@torch.inference_mode()
def bare_rates(
    network: RecipeNetwork, batch_size: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Return images per second of the network, without and with copies to and from its device."""
    samples = [
        read_sample(path, network.recipe, network.window).windows for path in options.paths[:16]
    ]
    sound = np.stack([windows for windows in samples if windows is not None])
    batch = torch.from_numpy(np.resize(sound, (batch_size, *sound.shape[1:])))
    sent, device = batch.to(network.device), network.device
    bare = seconds_of(lambda: network._rows(sent), device, options.seconds / 2)
    copied = seconds_of(lambda: network(batch), device, options.seconds / 2)
    return batch_size / bare, batch_size / copied


def two_workers(options: argparse.Namespace) -> None:
    """Print images per second in one process and on two workers that share the device."""
    name, contents = options.recipes[0], {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "images")
        folder.mkdir()
        count = min(2048, options.count)
        for number, path in zip(range(count), cycle(options.paths)):
            shutil.copyfile(path, folder / f"{number:06d}{path.suffix}")
        compute = Compute(options.weights, device=options.device, batch_size=options.batch_size)
        storage = Storage(rows_per_shard=max(1, count // 4))
        for workers in (None, 2):
            started = time.perf_counter()
            with patch.dict(os.environ, shared_card(workers or 1)):
                index = extract(
                    folder, Path(scratch, f"out-{workers}"), recipe=name, compute=compute,
                    storage=storage, place=Place(workers),
                )  # fmt: skip
            seconds = time.perf_counter() - started
            contents[workers] = index.content_sha256
            where = f"{workers} workers" if workers else "one process"
            print(f"{name}, {where}: {index.rows / seconds:.1f} images/s, start-up included")
    print(f"content {'the same' if contents[None] == contents[2] else 'DIFFERS'}")


def shared_card(workers: int) -> dict[str, str]:
    """Return the environment in which local workers share the first visible card.

    Each worker requires a card of its own, so the card is named once per worker.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
    return {"CUDA_VISIBLE_DEVICES": ",".join([first] * workers)}


def tests(options: argparse.Namespace) -> None:
    """Run the tests that need a card."""
    command = [sys.executable, "-m", "pytest", "-rs", *TESTS]
    environment = {**os.environ, "GPU_TESTS_DEVICE": options.device}
    subprocess.run(command, env=environment, check=True)


@contextmanager
def reported(options: argparse.Namespace, what: str) -> Iterator[None]:
    """Print an error and its traceback instead of raising it, and record what failed."""
    try:
        yield
    except Exception:
        traceback.print_exc(file=sys.stdout)
        options.failed.append(what)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "extract": extraction,
    "train": training,
    "rank": ranking,
    "caption": captioning,
    "workers": two_workers,
    "tests": tests,
}


@recorded
def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("parts", choices=["all", *PARTS], nargs="*", default="all")
    parser.add_argument("--images", type=Path, nargs="+", default=FOLDERS, help="Of JPEG files.")
    parser.add_argument("--count", type=int, default=20_000, help="Most images, taken in turn.")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--finetune", default="timm:resnet50", help="A recipe of pooled rows.")
    parser.add_argument("--ranked", type=int, default=100_000, help="Images that are ranked.")
    parser.add_argument("--weights", default="random:0", help="As `pipeline extract` accepts them.")
    parser.add_argument("--device", default="cuda", help="cpu only tries the program.")
    parser.add_argument("--batch-size", type=int, help="[default: that of `pipeline extract`]")
    parser.add_argument("--readers", type=int, help="[default: that of `pipeline extract`]")
    parser.add_argument("--seconds", type=float, default=3.0, help="Of every rate.")
    options = parser.parse_args()
    options.on_gpu = torch.device(options.device).type == "cuda"
    if options.on_gpu and not torch.cuda.is_available():
        sys.exit(
            "torch finds no CUDA device; run this on a machine with one, or use --device cpu "
            "with a small --count to try the program"
        )
    found = [path for folder in options.images for path in sorted(folder.glob("*.jp*g"))]
    if not found and any(part in options.parts for part in ("all", "extract", "workers")):
        sys.exit(f"no JPEG files in {', '.join(map(str, options.images))}")
    options.paths = found
    for path in found:
        path.read_bytes()
    card = torch.cuda.get_device_name() if options.on_gpu else "CPU"
    cores, started = len(os.sched_getaffinity(0)), time.perf_counter()
    print(f"{card}, torch {torch.__version__}, {cores} cores, {len(found)} images")
    options.failed = []
    for name, part in PARTS.items():
        if "all" in options.parts or name in options.parts:
            with reported(options, name):
                part(options)
    print(f"{time.perf_counter() - started:.0f} s in all")
    if options.failed:
        sys.exit(f"failed: {', '.join(options.failed)}")


if __name__ == "__main__":
    main()
