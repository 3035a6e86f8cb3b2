"""Regions per second of `pipeline extract --regions`, against a simple loop over regions.

    python -m bench.regions --images FOLDER

Four programs run on the same proposals (a grid), one after the other in one process:

obvious : for each region, decode its image, crop, resize, and call the original network once; torch
    on all cores.
crops   : `efficientnet-lite0-pool`: an image is decoded once, regions are batched.
bf16    : the same with `--precision bf16`.
aligned : `efficientnet-lite0-roi-align`: the network runs once per image, regions are pooled.

Rates count from the first finished region or batch. The rows of `obvious` and `crops` are compared.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.regions.features import Regions, extract_regions
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.proposals import image_of_region, read_proposals
from pipeline.regions.propose import propose
from pipeline.store.jobs.options import Compute
from pipeline.store.progress import Progress
from pipeline.store.shards.feature_set import read_features

WEIGHTS = "random:0"
CROPS, ALIGNED = "efficientnet-lite0-pool", "efficientnet-lite0-roi-align"


class Marks:
    """A monitor that records the time and the number of finished regions."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = []

    def log(self, line: str) -> None:
        """Discard a line."""

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Progress]:
        """Return a function that records the time, without that of checking finished rows."""

        def show(done: int, total: int, failed: int) -> None:
            if done and what != "checking":
                self.marks.append((time.perf_counter(), done))

        yield show


def rate(marks: list[tuple[float, int]]) -> float:
    """Return regions per second from the first mark to the last."""
    (start, first), (end, last) = marks[0], marks[-1]
    return (last - first) / (end - start)


@torch.inference_mode()
def obvious(dataset: Manifest, proposals: Path, count: int) -> tuple[float, list[str], np.ndarray]:
    """Run the simple loop over `count` regions; return regions per second, their ids and rows."""
    recipe = resolve_recipe(CROPS)
    net: Any = backbone_named(recipe.backbone).filled(load_weights(recipe, WEIGHTS).state).eval()
    found = read_proposals(proposals)
    regions = [region for image in found.image_ids for region in found.region_ids(image)]
    # Spread over the photos, whose sizes differ.
    regions = list(islice(regions, 0, None, max(1, len(regions) // count)))
    marks, rows = [], []
    for region in regions:
        image, k = image_of_region(region)
        x0, y0, x1, y1 = found.boxes(image)[k]
        with Image.open(dataset.image_root / image) as photo:
            crop = photo.convert("RGB").crop(
                (int(np.floor(x0)), int(np.floor(y0)), int(np.ceil(x1)), int(np.ceil(y1)))
            )
        resized = np.asarray(crop.resize((224, 224), Image.Resampling.BILINEAR), np.float32)
        x = torch.from_numpy((resized - 127) / 128).permute(2, 0, 1)[None]
        rows.append(net.extract_features(x).mean(dim=(2, 3))[0].numpy())
        marks.append((time.perf_counter(), len(rows)))
    return rate(marks), regions, np.stack(rows)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="Folder of JPEG files.")
    parser.add_argument("--photos", type=int, default=24)
    parser.add_argument("--number", type=int, default=100, help="Number of regions per image.")
    parser.add_argument("--obvious", type=int, default=150, help="Same, for the simple loop.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = sorted(options.images.glob("*.jp*g"))[: options.photos]
        entries = tuple(ImageEntry(file.name, file.name, "train", ()) for file in files)
        dataset = Manifest("bench", options.images.resolve(), entries, "", "", {})
        dataset.write(folder / "data")
        proposals = folder / "grid"
        propose(folder / "data", proposals, proposer=Proposer("grid", options.number))
        slowest, regions, expected = obvious(dataset, proposals, options.obvious)
        print(f"{len(files)} photos of {options.number} regions, {torch.get_num_threads()} cores")
        print(f"{'program':8} {'regions/s':>10} {'obvious x':>10}")
        print(f"{'obvious':8} {slowest:10.1f} {1:10.1f}")
        for program, recipe, precision in (
            ("crops", CROPS, "float32"),
            ("bf16", CROPS, "bf16"),
            ("aligned", ALIGNED, "float32"),
        ):
            marks = Marks()
            extract_regions(
                folder / "data",
                folder / program,
                regions=Regions(proposals),
                recipe=recipe,
                compute=Compute(WEIGHTS, precision=precision),
                monitor=marks,
            )
            found = rate(marks.marks)
            print(f"{program:8} {found:10.1f} {found / slowest:10.1f}")
        rows = read_features(folder / "crops").read(regions)
        difference = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
        print(f"relative difference of crops from obvious: {difference:.1e}")


if __name__ == "__main__":
    main()
