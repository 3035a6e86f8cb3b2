"""Speedup of the fast engine, and where its time is spent, on one core.

    python -m bench.engine [--images FOLDER] [--rounds 3]

layers   : fused convolutions in float32 and bf16, and Winograd's, against torch's `conv2d` and
    `relu`, in the shapes with most multiplications of ResNet-152 and VGG-19.
networks : `--engine fast`, and the same without Winograd's algorithm or without sharing of ten
    crops, against `--engine reference`, at the default batch size.
errors   : errors of their float32 features relative to float64 and to the reference.
files    : reading, decoding and resizing a photo against plain Pillow, and writing rows of
    ResNet-152's grid to published shards against plain h5py; both end with fsync.

Ratios are the time of the alternative divided by ours: above 1, ours is faster. Times are CPU
seconds, which other programs affect least, without waiting for a disk. The programs of a table
alternate, and the best time of each counts. Weights are seeded, except EfficientNet-Lite0's.
Photos are those next to the project unless a folder is named; without any, images are drawn.
"""

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest.mock import patch

import h5py
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from bench.decoding import FOLDERS
from bench.record import OPTIONS, recorded
from pipeline.images import network as networks
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.batches import default_parallelism, feature_header
from pipeline.images.engine import onednn, winograd
from pipeline.images.engine.fuse import Convolution
from pipeline.images.engine.onednn import OneDnnConvolution
from pipeline.images.engine.winograd import WinogradConvolution
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.tap import TappedNetwork
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.format import RowBlock

BATCH, TURNS, ROWS = 8, 9, 256
# Channels in and out, kernel, side of the map; ResNet-152 at 224 from layer2 on, then VGG-19.
SHAPES = (
    (512, 128, 1, 28), (128, 128, 3, 28), (128, 512, 1, 28),
    (1024, 256, 1, 14), (256, 256, 3, 14), (256, 1024, 1, 14),
    (512, 512, 3, 7), (256, 256, 3, 56), (512, 512, 3, 28),
)  # fmt: skip
# Lavin & Gray's points, in addition to those of `pipeline.images.engine.winograd`.
THEIRS = tuple(map(Fraction, (0, 1, -1, 2, -2)))
# What a network is built without, and its precision.
VARIANTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "reference": ("reference", (), "float32"),
    "fast": ("fast", (), "float32"),
    "fast, no Winograd": ("fast", ("Winograd",), "float32"),
    "fast, no sharing": ("fast", ("sharing",), "float32"),
    "fast, neither": ("fast", ("Winograd", "sharing"), "float32"),
    "fast, bf16": ("fast", (), "bf16"),
    "fast, bf16, no sharing": ("fast", ("sharing",), "bf16"),
}
# EfficientNet's 3 x 3 convolutions are depthwise, which Winograd's algorithm does nothing for.
NETWORKS = {
    "efficientnet-lite0-pool": ("reference", "fast", "fast, bf16"),
    "resnet152-grid": ("reference", "fast", "fast, no Winograd", "fast, bf16"),
    "vgg19-fc7-10crop": tuple(VARIANTS),
}

Way = Callable[[], object]


def in_turns(ways: Mapping[str, Way], turns: int) -> dict[str, float]:
    """Return the minimum CPU seconds of each way, without a first round, which packs weights."""
    best = dict.fromkeys(ways, math.inf)
    for turn in range(turns + 1):
        for name, way in ways.items():
            started = time.process_time()
            way()
            if turn:
                best[name] = min(best[name], time.process_time() - started)
    return best


def relative(found: Tensor, expected: Tensor) -> float:
    """Return the L2 norm of the difference relative to that of the expected values."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def by_torch(x: Tensor, weight: Tensor, bias: Tensor, padding: list[int]) -> Tensor:
    """Return the same layer in torch's own operations, as in the reference engine."""
    return F.conv2d(x, weight, bias, 1, padding).relu_()


def layers() -> None:
    """Print ratios, GFLOP/s and errors of single layers."""
    print(f"\nlayers: convolution and ReLU, batches of {BATCH}; ratios to torch's float32")
    print(
        f"{'in, out, kernel, map':21} {'fused':>6} {'Wino':>6} {'bf16':>6}  {'Wino/fused':>10} "
        f"{'bf16/fused':>10}   {'GFLOP/s: fused':>14} {'bf16':>5}   "
        f"{'error: fused':>12} {'Wino':>8} {'(theirs)':>8}"
    )
    draw = torch.Generator().manual_seed(0)
    for channels, filters, kernel, side in SHAPES:
        fan_in = channels * kernel**2
        weight = torch.randn(filters, channels, kernel, kernel, generator=draw)
        bias = torch.randn(filters, generator=draw) / 10
        weight *= (2 / fan_in) ** 0.5
        pair, ones = [kernel // 2] * 2, [1, 1]
        convolution = Convolution(weight.double(), bias.double(), pair, ones, ones, 1)
        x = torch.randn(BATCH, channels, side, side, generator=draw).relu()
        last = x.contiguous(memory_format=torch.channels_last)
        half = last.bfloat16()
        relu: tuple[str, list[float]] = ("relu", [])
        fused = OneDnnConvolution(convolution, relu, torch.float32)
        narrow = OneDnnConvolution(convolution, relu, torch.bfloat16)
        found = {"fused": fused(last)}
        ways: dict[str, Way] = {
            "torch": partial(by_torch, x, weight, bias, pair),
            "fused": partial(fused, last),
            "bf16": partial(narrow, half),
        }
        if kernel == 3:
            ours = WinogradConvolution(convolution, relu)
            with patch.object(winograd, "_POINTS", THEIRS):
                found["theirs"] = WinogradConvolution(convolution, relu)(last)
            found["Wino"] = ours(last)
            ways["Wino"] = partial(ours, last)
        best = in_turns(ways, TURNS)
        expected = by_torch(x.double(), weight.double(), bias.double(), pair)
        errors = {name: f"{relative(y, expected):.1e}" for name, y in found.items()}
        gain = {name: f"{best['torch'] / seconds:.2f}" for name, seconds in best.items()}
        of_fused = {name: f"{best['fused'] / seconds:.2f}" for name, seconds in best.items()}
        speed = {n: 2e-9 * BATCH * side**2 * filters * fan_in / s for n, s in best.items()}
        shape = f"{channels:4}, {filters:4}, {kernel}, {side:2}"
        print(
            f"{shape:21} {gain['fused']:>6} {gain.get('Wino', ''):>6} {gain['bf16']:>6}  "
            f"{of_fused.get('Wino', ''):>10} {of_fused['bf16']:>10}   {speed['fused']:14.0f} "
            f"{speed['bf16']:5.0f}   {errors['fused']:>12} {errors.get('Wino', ''):>8} "
            f"{errors.get('theirs', ''):>8}"
        )


def built(recipe: Recipe, state: dict[str, Tensor], variant: str) -> RecipeNetwork:
    """Build a recipe's network as a variant of the engine."""
    engine, without, precision = VARIANTS[variant]
    recipe = resolve_recipe(recipe.name, precision)
    with ExitStack() as undo:
        if "Winograd" in without:
            undo.enter_context(patch.object(onednn, "_WINOGRAD_CHANNELS", math.inf))
        if "sharing" in without:
            undo.enter_context(patch.object(networks, "share_ten_crops", lambda *_: None))
        return RecipeNetwork(recipe, state, "cpu", engine)


def windows_of(network: RecipeNetwork, photos: list[Path], count: int) -> Tensor:
    """Return the (count, windows, h, w, 3) uint8 windows of the first photos."""
    found = [read_sample(path, network.recipe, network.window).windows for path in photos[:count]]
    return torch.from_numpy(np.stack([row for row in found if row is not None]))


@torch.inference_mode()
def exact(recipe: Recipe, state: dict[str, Tensor], crops: Tensor) -> Tensor:
    """Return the rows of (n, windows, h, w, 3) crops by the unmodified network in float64."""
    backbone = backbone_named(recipe.backbone)
    net = backbone.build()
    net.load_state_dict(state)
    tapped = TappedNetwork(net.double().eval(), backbone, recipe)
    x = RecipeNetwork(recipe, state, "cpu", "reference").normalised(crops.flatten(0, 1)).double()
    # Crop by crop: the convolution in float64 unrolls its input.
    y = torch.cat([tapped(crop) for crop in x.split(1)])
    if y.ndim == 4:
        y = y.mean((2, 3)) if recipe.pool == "mean over cells" else y.permute(0, 2, 3, 1)
    return y.unflatten(0, crops.shape[:2]).mean(1)


def whole_networks(photos: list[Path], rounds: int) -> dict[str, float]:
    """Print images/s and errors of whole networks; return ResNet-152's seconds per image."""
    grid: dict[str, float] = {}
    for name, variants in NETWORKS.items():
        recipe = resolve_recipe(name)
        small = name.startswith("efficientnet")
        state = load_weights(recipe, "imagenet" if small else "random:0").state
        size = default_parallelism(recipe, "cpu").batch_size
        made = {variant: built(recipe, state, variant) for variant in variants}
        batches = {variant: windows_of(net, photos, size) for variant, net in made.items()}
        ways: dict[str, Way] = {v: partial(net, batches[v]) for v, net in made.items()}
        # Short turns are easily disturbed, so there are more of them.
        best = in_turns(ways, rounds * (4 if small else 1))
        few = 1 if recipe.crop.rule == "ten" else 2
        rows = {v: net(windows_of(net, photos, few)) for v, net in made.items()}
        truth = exact(recipe, state, windows_of(made["reference"], photos, few))
        print(f"\n{name}, batches of {size}")
        print(f"{'engine':23} {'x reference':>12} {'images/s':>9}   error: float64 reference")
        for variant, seconds in best.items():
            errors = [relative(rows[variant], other) for other in (truth, rows["reference"])]
            print(
                f"{variant:23} {best['reference'] / seconds:12.2f} {size / seconds:9.2f}   "
                f"{errors[0]:14.1e} {errors[1]:9.1e}"
            )
        if name == "resnet152-grid":
            grid = {variant: seconds / size for variant, seconds in best.items()}
        else:
            gains(best)
    ten = resolve_recipe("resnet152-pool-10crop")
    shares = RecipeNetwork(ten, load_weights(ten, "random:0").state).shares_crops
    print(f"\n{ten.name}: crops {'shared' if shares else 'computed one by one, nothing is shared'}")
    return grid


def gains(best: dict[str, float]) -> None:
    """Print the speedup of sharing the ten crops over computing them one by one."""
    pairs = (
        ("with Winograd", "fast, no sharing", "fast"),
        ("without Winograd", "fast, neither", "fast, no Winograd"),
        ("in bf16", "fast, bf16, no sharing", "fast, bf16"),
    )
    for how, plain, shared in pairs:
        if plain in best:
            print(f"sharing over ten plain crops, {how}: {best[plain] / best[shared]:.2f}")


def by_pillow(path: Path, size: int) -> np.ndarray:
    """Read a photo as a simple script does."""
    with Image.open(path) as image:
        canvas = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(canvas)


def files(photos: list[Path], rounds: int, grid: dict[str, float]) -> None:
    """Print milliseconds per photo and per row, and their share of ResNet-152's time."""
    print("\nfiles; parts of the time that the fast engine's ResNet-152 spends on an image")
    print(
        f"{'ms each':31} {'x other':>7} {'other':7} {'ours':>7} {'other':>9} {'of float32':>13}"
        f"{'of bf16':>13}"
    )
    recipe = resolve_recipe("resnet152-grid")
    ways: dict[str, Way] = {
        "Pillow": lambda: [by_pillow(path, recipe.resize.size) for path in photos],
        "ours": lambda: [read_sample(path, recipe, recipe.crop) for path in photos],
    }
    best = in_turns(ways, rounds)
    reading = {name: seconds / len(photos) for name, seconds in best.items()}
    report("a photo read, decoded, resized", reading, "Pillow", grid)
    for storage in ("float32", "float16"):
        stored = resolve_recipe("resnet152-grid", storage=storage)
        writing = {name: seconds / ROWS for name, seconds in written(stored, rounds).items()}
        report(f"a row of {stored.row_bytes / 1e3:.0f} kB written", writing, "h5py", grid)


def written(recipe: Recipe, rounds: int) -> dict[str, float]:
    """Return the seconds for writing `ROWS` rows to published shards, and to a bare file."""
    rng = np.random.default_rng(0)
    rows = np.maximum(rng.standard_normal((ROWS, *recipe.shape), np.float32) - 0.67, 0)
    header = feature_header(recipe, load_weights(recipe, "random:0"), "bench")
    ids = [f"{row:06d}.jpg" for row in range(ROWS)]
    status = np.zeros(BATCH, np.uint8)

    def shards(folder: Path) -> None:
        with ShardBuild(folder / "set", header, ids) as build:
            for row in range(0, ROWS, BATCH):
                block = RowBlock(rows[row : row + BATCH], status, ("",) * BATCH)
                build.append(row, block)
            build.publish()

    def bare(folder: Path) -> None:
        with h5py.File(folder / "rows.h5", "w") as file:
            data = file.create_dataset("features", rows.shape, recipe.storage)
            for row in range(0, ROWS, BATCH):
                data[row : row + BATCH] = rows[row : row + BATCH]
        with (folder / "rows.h5").open("rb") as raw:
            os.fsync(raw.fileno())

    def fresh(write: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))

    return in_turns({"h5py": lambda: fresh(bare), "ours": lambda: fresh(shards)}, rounds)


def report(what: str, seconds: dict[str, float], other: str, grid: dict[str, float]) -> None:
    """Print one line of `files`."""
    ours = seconds["ours"]
    parts = "".join(f"{ours / grid[engine]:13.1%}" for engine in ("fast", "fast, bf16"))
    print(
        f"{what:31} {seconds[other] / ours:7.2f} {other:7} {1e3 * ours:7.2f} "
        f"{1e3 * seconds[other]:9.2f} {parts}"
    )


def drawn(folder: Path, count: int = 16) -> list[Path]:
    """Write JPEG files of 640 x 480 pixels with detail at several scales."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC)).astype(int)
        noisy = (smooth + rng.integers(-20, 21, smooth.shape)).clip(0, 255).astype(np.uint8)
        paths.append(folder / f"{number:02d}.jpg")
        Image.fromarray(noisy).save(paths[-1], quality=90)
    return paths


@recorded
def main() -> None:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("--images", type=Path, help="Folder of JPEG files.")
    parser.add_argument("--rounds", type=int, default=3, help="Turns of the networks and files.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        folders = [options.images] if options.images else FOLDERS
        photos = [path for folder in folders for path in sorted(folder.glob("*.jp*g"))]
        what = f"{len(photos)} photos" if photos else "drawn photos"
        photos = photos or drawn(Path(folder))
        capability = torch.backends.cpu.get_cpu_capability()
        print(f"one thread, torch {torch.__version__}, {capability}, {what}")
        with torch.inference_mode():
            layers()
        grid = whole_networks(photos, options.rounds)
        files(photos, options.rounds, grid)
    print(f"\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
