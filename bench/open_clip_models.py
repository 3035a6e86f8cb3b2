"""Images and captions per second of open_clip models, against open_clip's own loop.

    python -m bench.open_clip_models --images FOLDER --captions FILE --models ViT-B-32 RN50

For each model and side, both programs alternate for several rounds in one process:

library : a DataLoader with 2 workers and the model's own transform (or its tokenizer), then
    `encode_image` (`encode_text`) on all cores, float32.
ours    : the loop of `pipeline extract` from files to rows, and the encoder of `pipeline text`.

Both use files in the page cache, the same seeded weights and the same batch size; rates count from
the first finished batch. `by CPU` is the ratio of CPU seconds, more reliable than `times` next to
other programs. The rows of both are compared.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader

from bench.extract import cpu_seconds
from pipeline.images.batches import Parallelism, default_parallelism, picture_rows
from pipeline.images.network import RecipeNetwork
from pipeline.images.networks.open_clip_models import find_clip_model
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.store.progress import Stopwatch
from pipeline.store.shards.plan import Span
from pipeline.text.open_clip_text import OpenClip

WEIGHTS = "random:0"
CAPTIONS_PER_BATCH = 32
Rows = np.ndarray
# Rows of batches, in order, as they are finished.
Batches = Iterator[Rows]


class Pictures(torch.utils.data.Dataset[torch.Tensor]):
    """Images prepared by open_clip's transform."""

    def __init__(self, paths: Sequence[Path], prepare: Callable[[Image.Image], torch.Tensor]):
        self.paths, self.prepare = paths, prepare

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return self.prepare(image)


class Lines(torch.utils.data.Dataset[str]):
    """Captions as a torch dataset."""

    def __init__(self, texts: Sequence[str]):
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> str:
        return self.texts[index]


def library_images(net: Any, prepare: Any, paths: Sequence[Path], batch_size: int) -> Batches:
    """Yield the rows of open_clip's own loop."""
    for batch in DataLoader(Pictures(paths, prepare), batch_size, num_workers=2):
        with torch.inference_mode():
            yield F.normalize(net.encode_image(batch), dim=-1).numpy()


def our_images(network: RecipeNetwork, paths: Sequence[Path], parallelism: Parallelism) -> Batches:
    """Yield the rows of `pipeline extract`."""
    spans = [Span(0, len(paths))]
    for _, block in picture_rows(spans, list(paths), network, parallelism, Stopwatch()):
        yield block.features


def library_captions(net: Any, tokenizer: Any, texts: Sequence[str]) -> Batches:
    """Yield the rows of open_clip's own loop."""
    for batch in DataLoader(Lines(texts), CAPTIONS_PER_BATCH, num_workers=2, collate_fn=tokenizer):
        with torch.inference_mode():
            yield F.normalize(net.encode_text(batch), dim=-1).numpy()


def our_captions(encoder: OpenClip, texts: Sequence[str]) -> Batches:
    """Yield the rows of `pipeline text` in blocks of many batches; the first batch is separate."""
    yield encoder.encode(texts[:CAPTIONS_PER_BATCH])
    yield encoder.encode(texts[CAPTIONS_PER_BATCH:])


def timed(batches: Batches) -> tuple[float, float, Rows]:
    """Return rows per second after the first batch, total CPU seconds, and the rows."""
    before = cpu_seconds()
    made = [next(batches)]
    start = time.perf_counter()
    made += batches
    rate = sum(map(len, made[1:])) / (time.perf_counter() - start)
    return rate, cpu_seconds() - before, np.concatenate(made)


def compare(what: str, programs: dict[str, Callable[[], Batches]], rounds: int) -> None:
    """Print medians, their ratios, and the largest difference between the rows."""
    rates: dict[str, list[float]] = {name: [] for name in programs}
    work: dict[str, list[float]] = {name: [] for name in programs}
    rows: dict[str, Rows] = {}
    for _ in range(rounds):
        for name, program in programs.items():
            rate, seconds, rows[name] = timed(program())
            rates[name].append(rate)
            work[name].append(seconds)
    library, ours = (statistics.median(rates[name]) for name in ("library", "ours"))
    less = statistics.median(work["library"]) / statistics.median(work["ours"])
    difference = np.abs(rows["library"] - rows["ours"]).max()
    print(
        f"{what:24} {library:9.2f} {ours:9.2f} {ours / library:7.2f} {less:7.2f} "
        f"{difference:12.1e}",
        flush=True,
    )


def compare_model(name: str, paths: Sequence[Path], texts: Sequence[str], rounds: int) -> None:
    """Compare both sides of one model."""
    model = find_clip_model(f"open-clip:{name}")
    net = build_clip(model)
    # As the model's weights want them; open_clip's own default where it has no weights.
    size = model.config["vision_cfg"]["image_size"]
    prepare = open_clip.image_transform(size, is_train=False, **model.preprocessing())
    net.load_state_dict(load_clip_weights(model, WEIGHTS, net).state, strict=False)
    recipe: Recipe = resolve_recipe(model.name)
    network = RecipeNetwork(recipe, load_weights(recipe, WEIGHTS).state)
    parallelism = default_parallelism(recipe, "cpu")
    compare(
        f"{name}, images",
        {
            "library": lambda: library_images(net, prepare, paths, parallelism.batch_size),
            "ours": lambda: our_images(network, paths, parallelism),
        },
        rounds,
    )
    tokenizer, encoder = open_clip.get_tokenizer(name), OpenClip(model, WEIGHTS)
    compare(
        f"{name}, captions",
        {
            "library": lambda: library_captions(net, tokenizer, texts),
            "ours": lambda: our_captions(encoder, texts),
        },
        rounds,
    )


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=Path, required=True, help="Folder of JPEG files.")
    parser.add_argument("--captions", type=Path, required=True, help="One caption per line.")
    parser.add_argument("--models", nargs="+", default=["ViT-B-32", "RN50", "convnext_base"])
    parser.add_argument("--count", type=int, default=64, help="Images, and 8 times the captions.")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module=r"PIL\.")
    found = sorted(arguments.images.glob("*.jp*g"))
    paths = [found[i % len(found)] for i in range(arguments.count)]
    for path in paths:
        path.read_bytes()
    lines = arguments.captions.read_text(encoding="utf-8").splitlines()
    texts = [lines[i % len(lines)] for i in range(8 * arguments.count)]
    print(f"{arguments.count} images, {len(texts)} captions, {torch.get_num_threads()} cores")
    print(f"{'':24} {'library/s':>9} {'ours/s':>9} {'times':>7} {'by CPU':>7} {'difference':>12}")
    for name in arguments.models:
        compare_model(name, paths, texts, arguments.rounds)


if __name__ == "__main__":
    main()
