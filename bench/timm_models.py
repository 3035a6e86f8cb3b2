"""timm models against timm's own loop: agreement of features, and images per second.

    python -m bench.timm_models --images FOLDER

For each of ten architectures with seeded weights: the maximum relative difference of our rows and
grids, by both engines, from timm's transform and forward; then images per second of

theirs : timm's model and transform, a DataLoader with one worker per core, at most 2; rows are kept
    in memory.
ours   : the loop of `pipeline extract`, from files to published shards.

Both use files in the page cache and the same batch size, in alternating separate processes with the
same cores. Rates count from the first finished batch. Prints the median over rounds, the median of
the ratios, and images per second of CPU time of all processes from the first file on, which other
programs affect least.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.extract import cpu_seconds, ours, rate
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.jobs.options import ENGINES

WEIGHTS = "random:0"
BATCH_SIZE = 8
MODELS = (
    "resnet50",
    "tf_efficientnet_lite0",
    "efficientnet_b0",
    "mobilenetv3_small_100",
    "regnety_002",
    "convnext_atto",
    "swin_tiny_patch4_window7_224",
    "deit_tiny_distilled_patch16_224",
    "vit_base_patch16_siglip_224",
    "vit_small_patch14_reg4_dinov2",
)


class Photos(Dataset[Tensor]):
    """Images prepared by timm for evaluation."""

    def __init__(self, paths: list[Path], net: Any) -> None:
        config = timm.data.resolve_model_data_config(net, use_test_size=True)
        self.paths, self.transform = paths, timm.data.create_transform(**config)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self.paths[index]) as image:
            found: Tensor = self.transform(image.convert("RGB"))
        return found


def model(recipe: Recipe) -> Any:
    """Return timm's own model without its classifier, with seeded weights."""
    net = timm.create_model(recipe.backbone.removeprefix("timm:"), num_classes=0).eval()
    net.load_state_dict(load_weights(recipe, WEIGHTS).state)
    return net


@torch.inference_mode()
def theirs(paths: list[Path], recipe: Recipe) -> tuple[float, float]:
    """Run timm's own loop; return images per second of wall time and of CPU time."""
    net = model(recipe)
    before = cpu_seconds()
    rows, marks = [], []
    workers = min(2, torch.get_num_threads())
    for images in DataLoader(Photos(paths, net), BATCH_SIZE, num_workers=workers):
        rows.append(net(images).numpy())
        marks.append((time.perf_counter(), sum(map(len, rows))))
    return rate(marks), len(paths) / (cpu_seconds() - before)


@torch.inference_mode()
def differences(paths: list[Path], recipe: Recipe) -> list[float]:
    """Return the relative differences of rows and grids from timm, by engine."""
    net = model(recipe)
    photos = Photos(paths, net)
    images = torch.stack([photos[number] for number in range(len(photos))])
    maps = net.forward_features(images)
    expected = [net.forward_head(maps, pre_logits=True)]
    if maps.ndim == 3:
        tokens = maps[:, getattr(net, "num_prefix_tokens", 0) :]
        side = round(tokens.shape[1] ** 0.5)
        expected.append(tokens.unflatten(1, (side, side)))
    else:
        last = getattr(net, "output_fmt", "") == "NHWC"
        expected.append(maps if last else maps.permute(0, 2, 3, 1))
    state = load_weights(recipe, WEIGHTS).state
    found = []
    for name, rows in zip((recipe.name, f"{recipe.name}-grid"), expected, strict=True):
        one = resolve_recipe(name)
        windows = np.stack([_windows(path, one) for path in paths])
        for engine in ENGINES:
            network = RecipeNetwork(one, state, engine=engine)
            difference = network(torch.from_numpy(windows)) - rows
            found.append(float(difference.norm() / rows.norm()))
    return found


def _windows(path: Path, recipe: Recipe) -> np.ndarray:
    windows = read_sample(path, recipe, recipe.crop).windows
    assert windows is not None, path
    return windows


def child(arguments: argparse.Namespace) -> None:
    """Run one program and print its result."""
    recipe = resolve_recipe(f"timm:{arguments.models[0]}")
    found = sorted(arguments.images.glob("*.jp*g"))
    paths = [found[i % len(found)] for i in range(arguments.count)]
    for path in set(paths):
        path.read_bytes()
    result: Any
    if arguments.run == "differences":
        network = RecipeNetwork(recipe, load_weights(recipe, WEIGHTS).state)
        result = [differences(paths[:4], recipe), network.remark, recipe.crop.size]
    elif arguments.run == "theirs":
        result = theirs(paths, recipe)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = ours(paths, recipe, Path(folder) / "shards")
    sys.stdout.write(json.dumps(result) + "\n")


def measured(arguments: argparse.Namespace, name: str, run: str) -> Any:
    """Run one program in a separate process."""
    command = [sys.executable, "-m", "bench.timm_models", "--images", str(arguments.images)]
    command += ["--models", name, "--count", str(arguments.count), "--run", run]
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    run_once = subprocess.run(
        ["taskset", "--cpu-list", ",".join(map(str, cores)), *command],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(run_once.stdout)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="Folder of JPEG files.")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--count", type=int, default=64, help="Images, taken in turn.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        child(arguments)
        return
    print(f"{arguments.count} images, batches of {BATCH_SIZE}, {arguments.cores} cores")
    print("difference: of the fast engine, the reference engine; rows and grids, the larger")
    print(
        f"{'model':32} {'pixels':>6} {'fast':>8} {'refer.':>8} {'theirs/s':>9} {'ours/s':>7} "
        "ours x by CPU"
    )
    for name in arguments.models:
        found, remark, pixels = measured(arguments, name, "differences")
        rates: dict[str, list[list[float]]] = {"theirs": [], "ours": []}
        for _ in range(arguments.rounds):
            for run, values in rates.items():
                values.append(measured(arguments, name, run))
        theirs_s, ours_s = (np.array(values) for values in rates.values())
        times, by_cpu = np.median(ours_s / theirs_s, axis=0)
        fast, reference = max(found[::2]), max(found[1::2])
        print(
            f"{name:32} {pixels:6} {fast:8.1e} {reference:8.1e} {np.median(theirs_s[:, 0]):9.2f} "
            f"{np.median(ours_s[:, 0]):7.2f} {times:6.2f} {by_cpu:6.2f}  {remark}",
            flush=True,
        )


if __name__ == "__main__":
    main()
