"""Ten pictures with awkward names and captions, a tiny head, and a server of them in a thread."""

import faulthandler
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
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
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.jobs.make_features import make_features
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.text.caption_source import CaptionSource, caption_header
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.web.serve.server import Server
from pipeline.web.serve.service import SearchService
from tests.project import Recorder
from tests.store.jobs.factories import publish_images
from tests.web.serve.factories import HUGE, KINDS, OUTSIDE, STRANGE, TOP, Site, Sources

COLOURS = {
    "red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 220), "grey": (128, 128, 128),
    "yellow": (240, 220, 20), "white": (250, 250, 250), "black": (5, 5, 5),
}  # fmt: skip
_SECONDS_TO_STOP = 30
SETTINGS = {
    "cell": "none", "dim": 16, "similarity": "cosine", "l2_normalise": "both", "epochs": 2,
    "batch_size": 5,
}  # fmt: skip


def _entries() -> tuple[ImageEntry, ...]:
    ids = [*COLOURS, STRANGE, OUTSIDE, HUGE]
    evil = {
        STRANGE: '<script>alert("a red dog")</script>',
        "red": "<img src=x onerror=alert(1)> & 'red' \u202e {{ 7 * 7 }}",
    }
    return tuple(
        ImageEntry(
            name,
            f"below/{k}.png",
            "test",
            (evil.get(name, f"a {name} dog"), f"{name} thing number {k}"),
        )
        for k, name in enumerate(ids)
    )


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """A prepared dataset of which one file is a link out of its root and one has 50 megapixels."""
    folder = tmp_path_factory.mktemp("serve")
    root, entries = folder / "root", _entries()
    (root / "below").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for entry in entries:
        colour = COLOURS.get(entry.id, (90, 60, 30))
        pixels = rng.integers(0, 40, (60, 400, 3)) + np.array(colour) - 20
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / entry.file)
    by_id = {entry.id: root / entry.file for entry in entries}
    by_id[OUTSIDE].rename(folder / "secret.png")
    by_id[OUTSIDE].symlink_to("../../secret.png")

    recipe = resolve_recipe("efficientnet-lite0-pool")
    weights = load_weights(recipe)
    header = feature_header(recipe, weights, "made")
    with ShardBuild(folder / "images", header, list(by_id)) as build:
        network = RecipeNetwork(recipe, weights.state)
        publish_images(build, list(by_id.values()), network, Parallelism(4, 1, 1))
    captions = {i: t for e in entries for i, t in zip(e.caption_ids, e.captions, strict=True)}
    texts = list(captions.values())
    fitting = Fitting(texts, "made", "train")
    encoder = fit_encoder(encoder_options("bow", vocabulary="all"), folder / "encoder", fitting, [])
    header = caption_header(encoder, "made")
    source = CaptionSource(header, list(captions), texts, encoder, folder / "encoder")
    make_features(source, folder / "captions")

    sets = FeatureSet(folder / "images"), FeatureSet(folder / "captions")
    pairs, inputs = join_pairs(entries, *sets), HeadInputs.of(*sets)
    head = make_head("vse", SETTINGS, inputs)
    history = head.fit(pairs, pairs, FitOptions(0))
    TrainedHead(
        "mine", "vse", SETTINGS, 0, "made", "train", "val", inputs, {}, None, history, "tests", head
    ).save(folder / "head")
    trained = load_head(folder / "head")
    embed_split(trained, entries, *sets, folder / "e.h5", {"dataset": "made"})
    kinds = {e.id: {"kind": KINDS[k % 2], "number": k} for k, e in enumerate(entries)}
    made = Manifest("made", root, entries, "<b>mine</b>", "drawn here", {}, metadata=kinds)
    made.write(folder / "dataset")
    Image.new("L", (8000, 6250), 90).save(by_id[HUGE])
    return Sources(folder / "e.h5", folder / "head", folder / "dataset", folder / "encoder")


@pytest.fixture(scope="session")
def site(sources: Sources) -> Iterator[Site]:
    """A server that answers while the tests run, as a client sees it."""
    monitor = Recorder()
    with Server(sources.searcher(monitor=monitor), port=0, top=TOP, monitor=monitor) as server:
        assert monitor.lines == []
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert isinstance(server.service, SearchService)
        yield Site(server.url, sources, server.service, monitor.lines)
        server.stop()
        thread.join(_SECONDS_TO_STOP)
        if thread.is_alive():
            faulthandler.dump_traceback()
        assert not thread.is_alive(), f"the server still runs {_SECONDS_TO_STOP} s after `stop`"
    assert not [line for line in monitor.lines if "Traceback" in line]
