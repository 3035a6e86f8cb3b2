"""Effect of lower precision and smaller storage types on features and on recall.

    python -m bench.precision --dataset data/flickr8k --split dev \\
        --captions data/text/flickr8k/mean-glove-6b-50d --head data/heads/flickr8k/HEAD

Extracts the pooled EfficientNet-Lite0 features of a split in every precision and storage type,
compares the rows with those of float32 (cosine, relative L2), and embeds all of them with one head
that was trained on float32 features.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.extract import publish_images
from pipeline.datasets.manifest import read_manifest
from pipeline.heads.inputs.pairs import join_pairs
from pipeline.heads.trained_head import load_head
from pipeline.images.batches import default_parallelism, feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet

RECIPE = "efficientnet-lite0-pool"
VARIANTS = (
    ("float32", "float32"), ("float32", "float16"), ("bf16", "float32"), ("bf16", "float16"),
    ("fp16", "float32"),
)  # fmt: skip


def main() -> None:
    """Extract, compare and print a table."""
    parser = argparse.ArgumentParser()
    for name in ("dataset", "captions", "head"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--limit", type=int, help="Only the first N images.")
    options = parser.parse_args()
    manifest = read_manifest(options.dataset)
    entries = manifest.select(options.split)[: options.limit]
    captions, trained = FeatureSet(options.captions), load_head(options.head)
    exact = None
    head = "precision storage   cosine min  mean        relative L2  i2t R@1  t2i R@1    rsum"
    print(f"{len(entries)} images of {manifest.name}/{options.split}, head {trained.experiment}")
    print(head)
    for precision, storage in VARIANTS:
        recipe = resolve_recipe(RECIPE, precision, storage)
        weights = load_weights(recipe)
        network = RecipeNetwork(recipe, weights.state)
        paths = [manifest.image_root / entry.file for entry in entries]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "features"
            header = feature_header(recipe, weights, manifest.name)
            with ShardBuild(out, header, [entry.id for entry in entries]) as build:
                parallelism = default_parallelism(recipe, "cpu")
                publish_images(build, paths, network, parallelism)
            pairs = join_pairs(entries, FeatureSet(out), captions)
        rows = pairs.images.take(np.arange(len(pairs.image_ids))).astype(np.float64)
        exact = rows if exact is None else exact
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(exact, axis=1)
        cosine = (rows * exact).sum(axis=1) / lengths
        difference = np.linalg.norm(rows - exact) / np.linalg.norm(exact)
        embeddings = Embeddings(
            pairs.image_ids,
            trained.head.embed_images(pairs.images),
            pairs.caption_ids,
            pairs.caption_image_ids,
            trained.head.embed_captions(pairs.captions),
            trained.head.similarity,
            {},
        )
        table = recall_table(embeddings)
        print(
            f"{precision:9} {storage:8} {cosine.min():11.6f}  {cosine.mean():.8f} "
            f"{difference:12.1e} {table['image_to_text_r1']:8.1f} "
            f"{table['text_to_image_r1']:8.1f} {table['rsum']:7.1f}"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
