"""Recall of trained systems on corrupted images, by corruption and severity.

    python -m bench.corruptions vsepp wang2016-cca --dataset data/flickr8k --frost FOLDER \\
        --out corruptions.csv

Noise, blur, frost, contrast and JPEG compression at the five severities of Hendrycks & Dietterich,
"Benchmarking neural network robustness to common corruptions and perturbations" (ICLR 2019). Each
system keeps the captions of its embedding file; its images are corrupted, and their features are
computed and embedded by its trained head. Only the table is written. Prints rsum as a percentage of
that of the original images; the CSV has R@1, R@5, R@10 of both directions and rsum.
"""

import argparse
import csv
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.ndimage import gaussian_filter

from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.decoding.decode import decode
from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import CUTOFFS, DIRECTIONS
from pipeline.retrieval.ranking.galleries import images_between
from pipeline.retrieval.ranking.recall import recall_table

SEVERITIES = (1, 2, 3, 4, 5)
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)  # standard deviation; pixels from 0 to 1
BLUR = (1, 2, 3, 4, 6)  # standard deviation in pixels
FROST = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))  # of image and frost
CONTRAST = (0.4, 0.3, 0.2, 0.1, 0.05)  # what is kept of the distance to the mean
QUALITY = (25, 18, 15, 10, 7)  # of JPEG
CORRUPTIONS = ("noise", "blur", "frost", "contrast", "jpeg")
FROST_PHOTOS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
COLUMNS = (*(f"{direction}_r{k}" for direction in DIRECTIONS for k in CUTOFFS), "rsum")

Pixels = npt.NDArray[np.uint8]


def corrupt(
    pixels: Pixels,
    corruption: str,
    severity: int,
    rng: np.random.Generator,
    frost: Sequence[Pixels] = (),
) -> Pixels:
    """Return a corrupted image, with the constants and the rounding of imagecorruptions 1.1.2.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 RGB.
    corruption : str. A name in `CORRUPTIONS`.
    severity : int. 1 to 5.
    rng : random generator of noise, and of the choice and crop of the frost image.
    frost : images of frost, (h, w, 3) uint8.
    """
    at = severity - 1
    unit = pixels / 255.0
    changed: Any
    if corruption == "noise":
        changed = 255 * np.clip(unit + rng.normal(size=unit.shape, scale=NOISE[at]), 0, 1)
    elif corruption == "blur":
        sigma = (BLUR[at], BLUR[at], 0)
        changed = 255 * np.clip(gaussian_filter(unit, sigma, mode="nearest"), 0, 1)
    elif corruption == "contrast":
        mean = unit.mean(axis=(0, 1), keepdims=True)
        changed = 255 * np.clip((unit - mean) * CONTRAST[at] + mean, 0, 1)
    elif corruption == "frost":
        photo = frost[int(rng.integers(len(frost)))]
        kept, added = FROST[at]
        changed = np.clip(kept * pixels + added * _crop(photo, pixels.shape, rng), 0, 255)
    else:
        data = BytesIO()
        Image.fromarray(pixels).save(data, "JPEG", quality=QUALITY[at])
        return np.asarray(Image.open(data))
    return changed.astype(np.uint8)


def _crop(photo: Pixels, shape: tuple[int, ...], rng: np.random.Generator) -> Pixels:
    """Return a random crop of a photo, which is enlarged to 1.1 times the crop or more."""
    import cv2  # of the extra edge-boxes

    height, width = photo.shape[:2]
    factor = 1.1 * max(1, shape[0] / height, shape[1] / width)
    size = (int(np.ceil(width * factor)), int(np.ceil(height * factor)))
    large = np.asarray(cv2.resize(photo, size, interpolation=cv2.INTER_CUBIC), np.uint8)
    top = int(rng.integers(len(large) - shape[0]))
    left = int(rng.integers(large.shape[1] - shape[1]))
    return large[top : top + shape[0], left : left + shape[1]]


@dataclass(frozen=True)
class System:
    """A trained head with the embeddings of the captions to rank."""

    name: str
    head: TrainedHead
    embedded: Embeddings

    def recall(self, features: npt.NDArray[np.float32]) -> dict[str, float]:
        """Return `COLUMNS` of images with these features, (images, *shape) float32."""
        vectors = np.asarray(self.head.embed_images(features), np.float32)
        table = recall_table(replace(self.embedded, image_embeddings=vectors))
        return {column: table[column] for column in COLUMNS}


def systems_of(layout: Layout, names: Sequence[str], limit: int | None) -> list[System]:
    """Load heads and embedding files with the first `limit` images; exit if their images differ."""
    systems = []
    for name in names:
        embedded = read_embeddings(layout.embeddings(name))
        first = slice(0, limit or len(embedded.image_ids))
        embedded = images_between(embedded, embedded.image_of_caption, first)
        systems.append(System(name, load_head(layout.head(name)), embedded))
    if len({(*system.embedded.image_ids,) for system in systems}) > 1:
        sys.exit("the embedding files are of different images: embed the same split with each")
    if len({system.head.inputs.images.recipe_hash for system in systems}) > 1:
        sys.exit("the heads were trained on different image features: measure them one by one")
    return systems


def conditions(frost: bool) -> list[tuple[str, int]]:
    """Return corruptions and severities in table order, the original images first."""
    named = [name for name in CORRUPTIONS if frost or name != "frost"]
    return [("intact", 0), *((name, severity) for name in named for severity in SEVERITIES)]


def corrupted(
    images: Mapping[str, Pixels], corruption: str, severity: int, frost: Sequence[Pixels]
) -> Iterator[Pixels]:
    """Yield the images, each corrupted with a seed from its id, the corruption and the severity."""
    for name, pixels in images.items():
        seed = zlib.crc32(f"{corruption} {severity} {name}".encode())
        if severity:
            yield corrupt(pixels, corruption, severity, np.random.default_rng(seed), frost)
        else:
            yield pixels


def main() -> None:
    """Corrupt, embed and rank; print the table as it grows."""
    parser = argparse.ArgumentParser(prog="bench.corruptions", description=__doc__)
    parser.add_argument("experiments", nargs="+", help="trained on the dataset, and embedded")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="only the first N images")
    parser.add_argument("--frost", type=Path, help="folder of its photos; without it, no frost")
    parser.add_argument("--out", type=Path, required=True, help="CSV file")
    given = parser.parse_args()
    systems = systems_of(Layout(given.dataset), given.experiments, given.limit)
    manifest = read_manifest(given.dataset)
    images = {
        name: np.asarray(decode((manifest.image_root / manifest[name].file).read_bytes()))
        for name in systems[0].embedded.image_ids
    }
    frost = [
        np.asarray(Image.open(given.frost / name).convert("RGB"))
        for name in (FROST_PHOTOS if given.frost else ())
    ]
    spec = systems[0].head.inputs.images
    extractor = FeatureExtractor(spec.name)
    if extractor.recipe_hash != spec.recipe_hash:
        sys.exit(f"the heads were trained on other features than those of {spec.name}")
    print(f"{len(images)} images of {manifest.name}; rsum in per cent of the intact images' rsum")
    print(f"{'':11}", *(system.name for system in systems))
    intact: dict[str, float] = {}
    with given.out.open("w", 1, newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["experiment", "corruption", "severity", *COLUMNS])
        for corruption, severity in conditions(bool(frost)):
            features = extractor(corrupted(images, corruption, severity, frost))
            cells = []
            for system in systems:
                row = system.recall(features)
                table.writerow([system.name, corruption, severity, *row.values()])
                share = 100 * row["rsum"] / intact.setdefault(system.name, row["rsum"])
                cells.append(f"{share:{len(system.name)}.1f}")
            print(f"{corruption:9}{severity:2}", *cells, flush=True)


if __name__ == "__main__":
    main()
