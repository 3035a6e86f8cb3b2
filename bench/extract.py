"""Images per second from JPEG files to shards, against a typical script and the bare network.

    python -m bench.extract --recipe resnet152-grid --images FOLDER

Three programs run alternately in separate processes, for several rounds:

obvious : the network of torchvision, timm or Caffe, torchvision's transforms, a DataLoader with 2
    workers (1 on one core), h5py; float32, at the best of several batch sizes.
bare    : only the network of `pipeline extract`, on windows in memory.
ours    : the loop of `pipeline extract`, from files to published shards.

All use files in the page cache and seeded weights. Rates count from the first finished batch,
without start-up; "CPU" is images per second of CPU time, which other programs affect least.
`--cores 1` limits each program to one core. The features of `obvious` and `ours` are compared.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.record import OPTIONS, recorded
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.batches import Parallelism, default_parallelism, feature_header, picture_rows
from pipeline.images.network import RecipeNetwork, pooled
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.tap import TappedNetwork
from pipeline.images.transforms import read_sample
from pipeline.images.weights import load_weights
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.progress import Progress, no_progress
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import RowBlock
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.writer import stored_block

WEIGHTS = "random:0"
Rates = tuple[float, float]
"""Images a second from the first finished batch on, and a second of all CPU time."""
BATCH_SIZES = {
    "resnet152-grid": (8, 16, 32),
    "vgg19-fc7-10crop": (1, 2, 4),
    "resnet50-caffe-grid": (8, 16, 32),
    "resnet50-caffe-pool": (8, 16, 32),
    "resnet50-caffe-pool-10crop": (1, 2, 4),
    "xception-pool": (8, 16),
    "efficientnet-lite0-pool": (8, 16, 32),
    "timm:vit_base_patch16_224": (8, 16, 32),
}


class Photos(Dataset[Tensor]):
    """Images as a typical script reads them."""

    def __init__(self, paths: list[Path], recipe: Recipe) -> None:
        rule = recipe.normalise
        channels = [2, 1, 0] if rule.channels == "BGR" else [0, 1, 2]
        # Here, since bench.gpu uses other parts of this module where torchvision may be missing.
        from torchvision.transforms import v2

        scale = v2.ToDtype(torch.float32, scale=rule.scale == 255)
        normalise = v2.Normalize(list(rule.mean), list(rule.std))
        to_float = v2.Compose([v2.PILToTensor(), lambda x: x[channels], scale, normalise])
        size = recipe.resize.size
        resize = v2.Resize(
            [size, size] if recipe.resize.rule == "squash" else [size],
            v2.InterpolationMode(recipe.resize.interpolation), antialias=True,
        )  # fmt: skip
        cut = [v2.CenterCrop(recipe.crop.size)] if recipe.crop.rule == "centre" else []
        self.paths, self.recipe = paths, recipe
        self.transform = v2.Compose([resize, *cut, to_float])
        self.ten = v2.Compose([resize, v2.TenCrop(recipe.crop.size)])
        self.to_float = to_float

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self.paths[index]) as image:
            rgb = image.convert("RGB")
        if self.recipe.crop.rule == "ten":
            return torch.stack([self.to_float(crop) for crop in self.ten(rgb)])
        found: Tensor = self.transform(rgb)
        return found


@torch.inference_mode()
def obvious(paths: list[Path], recipe: Recipe, batch_size: int, out: Path) -> Rates:
    """Run the typical script."""
    backbone = backbone_named(recipe.backbone)
    net = backbone.filled(load_weights(recipe, WEIGHTS).state).eval()
    trunk = TappedNetwork(net, backbone, recipe)
    before = cpu_seconds()
    readers = min(2, len(os.sched_getaffinity(0)))
    loader = DataLoader(Photos(paths, recipe), batch_size, num_workers=readers)
    marks: list[tuple[float, int]] = []
    done = 0
    with h5py.File(out, "w") as file:
        features = file.create_dataset("features", (len(paths), *recipe.shape), "f4")
        for images in loader:
            rows = trunk(images.flatten(0, 1) if images.ndim == 5 else images)
            rows = pooled(rows, recipe, backbone)
            if images.ndim == 5:
                rows = rows.unflatten(0, (len(images), 10)).mean(1)
            features[done : done + len(rows)] = rows.numpy()
            done += len(rows)
            marks.append((time.perf_counter(), done))
    return rate(marks), done / (cpu_seconds() - before)


def bare(paths: list[Path], recipe: Recipe) -> Rates:
    """Run only the network, on windows in memory."""
    parallelism = default_parallelism(recipe, "cpu")
    network = RecipeNetwork(recipe, load_weights(recipe, WEIGHTS).state)
    samples = [read_sample(path, recipe, network.window).windows for path in paths[:16]]
    windows = np.stack([w for w in samples if w is not None])
    batch = torch.from_numpy(np.resize(windows, (parallelism.batch_size, *windows.shape[1:])))
    torch.set_num_threads(1)
    before = cpu_seconds()
    marks: list[tuple[float, int]] = []
    with ThreadPoolExecutor(parallelism.threads) as pool:
        # One batch more for each thread than it is measured on, as for the others.
        count = max(2, -(-len(paths) // parallelism.batch_size))
        for number, _ in enumerate(pool.map(lambda _: network(batch), range(count)), start=1):
            marks.append((time.perf_counter(), number * parallelism.batch_size))
    return rate(marks), marks[-1][1] / (cpu_seconds() - before)


def ours(paths: list[Path], recipe: Recipe, out: Path) -> Rates:
    """Run the extraction loop."""
    parallelism = default_parallelism(recipe, "cpu")
    weights = load_weights(recipe, WEIGHTS)
    network = RecipeNetwork(recipe, weights.state)
    marks: list[tuple[float, int]] = []

    def mark(done: int, total: int, failed: int) -> None:
        if done:
            marks.append((time.perf_counter(), done))

    ids = [f"{number}-{path.name}" for number, path in enumerate(paths)]
    before = cpu_seconds()
    with ShardBuild(out, feature_header(recipe, weights, "bench"), ids) as build:
        publish_images(build, paths, network, parallelism, mark)
    marks[-1] = (time.perf_counter(), marks[-1][1])
    return rate(marks), len(paths) / (cpu_seconds() - before)


def publish_images(
    build: ShardBuild,
    paths: Sequence[Path],
    network: RecipeNetwork,
    parallelism: Parallelism,
    mark: Progress = no_progress,
) -> FeatureIndex:
    """Compute the rows of image files with a network, and publish the set."""

    def stored(first_row: int, blocks: list[RowBlock]) -> list[RowBlock]:
        ids = build.ids[first_row : first_row + len(blocks[0])]
        return [stored_block(build.header, block, ids) for block in blocks]

    return build.fill(
        lambda spans, watch: picture_rows(spans, paths, network, parallelism, watch, stored),
        mark,
    )


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def rate(marks: list[tuple[float, int]]) -> float:
    """Return images a second from the first finished batch to the end."""
    (start, first), (end, last) = marks[0], marks[-1]
    return (last - first) / (end - start)


def child(arguments: argparse.Namespace) -> None:
    """Run one program and print its rates."""
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
        torch.set_num_threads(arguments.cores)
    recipe = resolve_recipe(arguments.recipe, arguments.precision)
    found = sorted(arguments.images.glob("*.jp*g"))
    paths = [found[i % len(found)] for i in range(arguments.count)]
    for path in set(paths):
        path.read_bytes()
    if arguments.run == "obvious":
        rates = obvious(paths, recipe, arguments.batch_size, arguments.out)
    elif arguments.run == "bare":
        rates = bare(paths, recipe)
    else:
        rates = ours(paths, recipe, arguments.out)
    sys.stdout.write(json.dumps(rates) + "\n")


def measured(arguments: argparse.Namespace, run: str, count: int, **more: object) -> Rates:
    """Run one program in a process of its own."""
    options = {"recipe": arguments.recipe, "images": arguments.images, "run": run, "count": count}
    more |= {"cores": arguments.cores}
    words = [f"--{key.replace('_', '-')}={value}" for key, value in {**options, **more}.items()]
    command = [sys.executable, "-m", "bench.extract", *words]
    run_once = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    by_clock, by_cpu = json.loads(run_once.stdout)
    return float(by_clock), float(by_cpu)


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Run all programs in turn and print medians and ratios."""
    recipe = resolve_recipe(arguments.recipe)
    tried = {
        size: measured(
            arguments, "obvious", 3 * size, batch_size=size, out=folder / f"tried{size}.h5"
        )
        for size in BATCH_SIZES[arguments.recipe]
    }
    best = max(tried, key=lambda size: tried[size][1])
    cores = arguments.cores or torch.get_num_threads()
    print(f"{recipe.name}, {arguments.count} images, {cores} cores")
    by_cpu = {size: round(found[1], 2) for size, found in tried.items()}
    print(f"obvious, images per CPU second by batch size: {by_cpu}; best {best}")
    rates: dict[tuple[str, str], list[Rates]] = {}
    for number in range(arguments.rounds):
        naive = folder / f"obvious{number}.h5"
        found = measured(arguments, "obvious", arguments.count, batch_size=best, out=naive)
        rates.setdefault(("obvious", "float32"), []).append(found)
        for precision in arguments.precisions:
            out = folder / f"{precision}{number}"
            for run in ("bare", "ours"):
                found = measured(arguments, run, arguments.count, precision=precision, out=out)
                rates.setdefault((run, precision), []).append(found)
    clock, cpu = (
        {key: statistics.median(value[i] for value in found) for key, found in rates.items()}
        for i in (0, 1)
    )
    header = f"{'images/s':>9} {'obvious x':>10} {'CPU':>9} {'obvious x':>10} {'bare x':>7}"
    print(f"{'program':8} {'precision':9} {header}")
    for (run, precision), value in clock.items():
        key, first = (run, precision), ("obvious", "float32")
        share = f"{cpu[key] / cpu['bare', precision]:7.2f}" if run == "ours" else ""
        print(
            f"{run:8} {precision:9} {value:9.2f} {value / clock[first]:10.2f} {cpu[key]:9.2f} "
            f"{cpu[key] / cpu[first]:10.2f} {share}"
        )
    with h5py.File(folder / "obvious0.h5") as file:
        expected = file["features"][()]
    for precision in arguments.precisions:
        features = FeatureSet(folder / f"{precision}0")
        rows = features.read(features.ids)
        difference = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
        print(f"{precision}: relative difference of the features from the obvious {difference:.1e}")


@recorded
def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("--recipe", choices=BATCH_SIZES, default="resnet152-grid")
    parser.add_argument("--images", type=Path, required=True, help="Folder of JPEG files.")
    parser.add_argument("--count", type=int, default=96, help="Images, taken in turn.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=0, help="Cores of each program; 0: all.")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="float32", help=argparse.SUPPRESS)
    parser.add_argument("--batch-size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        child(arguments)
        return
    largest = max(BATCH_SIZES[arguments.recipe])
    if arguments.count <= largest:
        parser.error(f"--count needs more than a batch of {largest}: the first one is not counted")
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Path(folder))


if __name__ == "__main__":
    main()
