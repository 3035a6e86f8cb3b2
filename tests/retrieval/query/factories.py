"""Two pictures with captions, their features, and a ridge head that is fitted on them."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.datasets.entries import ImageEntry
from pipeline.heads.base import FitOptions
from pipeline.heads.embed import embed_split
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import join_pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.batches import Parallelism, feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.make_features import make_features
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.text.caption_source import CaptionSource, caption_header
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitting import Fitting, fit_encoder
from tests.store.jobs.factories import publish_images

CAPTIONS = ("a red square", "a square on the grass", "two blue dogs", "dogs on the red grass")
ENTRIES = [
    ImageEntry("p0", "p0.png", "train", CAPTIONS[:2]),
    ImageEntry("p1", "p1.png", "train", CAPTIONS[2:]),
]
FILES = [entry.file for entry in ENTRIES]


def quiet(line: str) -> None:
    raise AssertionError(f"nothing should be logged: {line}")


def fill(folder: Path) -> None:
    """Write two pictures, features of both sides, and the folder `head` of a fitted head."""
    rng = np.random.default_rng(0)
    for file, size in zip(FILES, ((41, 60, 3), (230, 31, 3)), strict=True):
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(folder / file)
    extract(folder, "efficientnet-lite0-pool", "images", storage="float16")
    encode(folder, "bow", vocabulary="all")
    train(folder, "head")


def extract(folder: Path, recipe_name: str, out: str, storage: str = "float32") -> None:
    """Write the features of both pictures."""
    recipe = resolve_recipe(recipe_name, storage=storage)
    weights = load_weights(recipe)
    header = feature_header(recipe, weights, "made")
    with ShardBuild(folder / out, header, [e.id for e in ENTRIES]) as build:
        network = RecipeNetwork(recipe, weights.state)
        publish_images(build, [folder / file for file in FILES], network, Parallelism(2, 1, 1))


def encode(folder: Path, name: str, **options: Any) -> None:
    """Fit an encoder, and write its features of the captions."""
    fitting = Fitting(CAPTIONS, "made", "train")
    encoder = fit_encoder(encoder_options(name, **options), folder / "encoder", fitting, CAPTIONS)
    ids = [caption_id for entry in ENTRIES for caption_id in entry.caption_ids]
    header = caption_header(encoder, "made")
    source = CaptionSource(header, ids, CAPTIONS, encoder, folder / "encoder")
    make_features(source, folder / "captions")


def features(folder: Path) -> tuple[FeatureSet, FeatureSet]:
    return FeatureSet(folder / "images"), FeatureSet(folder / "captions")


def train(folder: Path, name: str, **settings: Any) -> TrainedHead:
    """Fit a ridge head to the features in a folder, save it there and load it again."""
    sets = features(folder)
    pairs = join_pairs(ENTRIES, *sets)
    head = make_head("ridge", settings, HeadInputs.of(*sets))
    history = head.fit(pairs, pairs, FitOptions(0))
    splits, inputs = ("train", "val"), HeadInputs.of(*sets)
    TrainedHead(
        "mine", "ridge", settings, 0, "made", *splits, inputs, {}, None, history, "tests", head
    ).save(folder / name)
    return load_head(folder / name)


def embedded(folder: Path, trained: TrainedHead) -> Embeddings:
    out = folder / "embedded.h5"
    return embed_split(trained, ENTRIES, *features(folder), out, {"dataset": "made"})
