"""Queries: embedded as their features would be, and by no head, encoder or weights but its own."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions
from pipeline.heads.catalogue import make_head
from pipeline.heads.data.feature_spec import HeadInputs
from pipeline.heads.data.pairs import join_pairs
from pipeline.heads.embed import embed_split
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.extract import Parallelism, extract_features, feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.weights import WeightsError, load_weights
from pipeline.recipes import resolve_recipe
from pipeline.retrieval.embeddings import Embeddings, read_embeddings, write_embeddings
from pipeline.retrieval.search import SearchError
from pipeline.search.query_embedding import (
    embed_encoded,
    embed_seen,
    head_of,
    open_encoder,
    open_network,
    read_sentences,
    require_lines,
)
from pipeline.search.searcher import Searcher, Sources
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.feature_set import FeatureSet
from pipeline.text.catalogue import plan_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.rows import caption_header, encode_captions

CAPTIONS = ("a red square", "a square on the grass", "two blue dogs", "dogs on the red grass")
ENTRIES = [
    ImageEntry("p0", "p0.png", "train", CAPTIONS[:2]),
    ImageEntry("p1", "p1.png", "train", CAPTIONS[2:]),
]
FILES = [entry.file for entry in ENTRIES]


def quiet(line: str) -> None:
    raise AssertionError(f"nothing should be told: {line}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures, features of both sides, and the folder `head` of a head fitted on them."""
    folder = tmp_path_factory.mktemp("queries")
    rng = np.random.default_rng(0)
    for file, size in zip(FILES, ((41, 60, 3), (230, 31, 3)), strict=True):
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(folder / file)
    recipe = resolve_recipe("efficientnet-lite0-pool", storage="float16")
    weights = load_weights(recipe)
    header = feature_header(recipe, weights, "made")
    with ShardBuild(folder / "images", header, [e.id for e in ENTRIES]) as build:
        network = RecipeNetwork(recipe, weights.state)
        extract_features(build, [folder / file for file in FILES], network, Parallelism(2, 1, 1))
    encode(folder, "bow", vocabulary="all")
    train(folder, "head")
    return folder


def encode(folder: Path, name: str, **options: Any) -> None:
    """Fit an encoder, and write its features of the captions."""
    fitting = Fitting(CAPTIONS, "made", "train")
    encoder = fit_encoder(plan_encoder(name, **options), folder / "encoder", fitting, CAPTIONS)
    ids = [one for entry in ENTRIES for one in entry.caption_ids]
    with ShardBuild(folder / "captions", caption_header(encoder, "made"), ids) as build:
        encode_captions(build, encoder, CAPTIONS)


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
    return embed_split(trained, ENTRIES, *features(folder), {"dataset": "made"})


def test_queries_lie_where_their_features_put_them(made: Path) -> None:
    trained = load_head(made / "head")
    stored = embedded(made, trained)
    encoder = open_encoder(trained, made / "encoder", CAPTIONS[1:])
    rows = embed_encoded(trained, encoder, CAPTIONS[1:], quiet)
    np.testing.assert_array_equal(rows, stored.caption_embeddings[1:])
    # Another batch size than in the extraction, and then float16.
    both = embed_seen(trained, open_network(trained), [made / file for file in FILES])
    np.testing.assert_allclose(both, stored.image_embeddings, rtol=2e-3, atol=1e-3)
    assert np.abs(both[0] - both[1]).max() > 0.01
    np.testing.assert_array_equal(both, both.astype(np.float16))
    alone = embed_seen(trained, open_network(trained, "imagenet"), [made / FILES[1]])
    np.testing.assert_array_equal(alone, both[1:])


def test_words_that_the_encoder_does_not_know_are_told_or_refused(made: Path) -> None:
    trained, told = load_head(made / "head"), list[str]()
    encoder = open_encoder(trained, made / "encoder", [])
    rows = embed_encoded(trained, encoder, ["two qzzyx dogs", "a red fish"], told.append)
    known = embed_encoded(trained, encoder, ["two dogs", "a red"], quiet)
    np.testing.assert_array_equal(rows, known)
    assert told == ["bow-w2vv-filterstop-all-6 does not know: fish, qzzyx"]
    with pytest.raises(SearchError, match=r"knows no word of 1 of 2 queries, first \['qzzyx'\]"):
        embed_encoded(trained, encoder, ["a dogs", "qzzyx"], quiet)
    with pytest.raises(SearchError, match="2 of 2, 'a\\\\nb', has a line break"):
        require_lines(["a", "a\nb"])


def test_a_word_without_a_vector_is_looked_for_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / "images", tmp_path / "images")
    encode(tmp_path, "mean")
    trained = train(tmp_path, "head")
    write_embeddings(tmp_path / "e.h5", embedded(tmp_path, trained))
    told, loaded = list[str](), list[str]()

    def load(head: TrainedHead, folder: Path, texts: Sequence[str]) -> CaptionEncoder:
        loaded.extend(texts)
        return open_encoder(head, folder, texts)

    sources = Sources(tmp_path / "e.h5", tmp_path / "head", tmp_path, tmp_path / "encoder")
    searcher = Searcher(sources, told.append)
    searcher.keep_encoder(CAPTIONS)
    monkeypatch.setattr("pipeline.search.searcher.open_encoder", load)
    # Of these only "car" has a vector that was not kept.
    first, again = "two qzzyx dogs", "qzzyx on the grass"
    asked = [first, first, again, "a qzzyx car", "a qzzyx car", "qwwyx grass", "qwwyx qzzyx red"]
    for text in asked:
        found = searcher.of_sentences([text])
        encoder = open_encoder(trained, sources.encoder, [text])
        expected = embed_encoded(trained, encoder, [text], told.append)
        np.testing.assert_array_equal(found, expected)
        assert told.pop() == told.pop()
    assert loaded == [first, "a qzzyx car", "a qzzyx car", "qwwyx grass"]


def test_an_encoder_that_was_fitted_to_other_captions_is_refused(
    made: Path, tmp_path: Path
) -> None:
    fitting = Fitting(CAPTIONS[:1], "made", "train")
    fit_encoder(plan_encoder("bow", vocabulary="all"), tmp_path / "other", fitting, [])
    with pytest.raises(SearchError, match=r"other holds the encoder 'bow-.*-2'.* on 'bow-.*-6'"):
        open_encoder(load_head(made / "head"), tmp_path / "other", ["a red"])


def test_pictures_that_cannot_be_embedded_are_refused(made: Path, tmp_path: Path) -> None:
    trained = load_head(made / "head")
    network = open_network(trained)
    (tmp_path / "text.png").write_text("no picture")
    for name, message in (("text.png", "text.png is unreadable"), ("none.png", "is missing")):
        with pytest.raises(SearchError, match=message):
            embed_seen(trained, network, [made / FILES[0], tmp_path / name])
    with pytest.raises(SearchError, match=r"'random:4' .*fitted on: weights .package:"):
        open_network(trained, "random:4")
    with pytest.raises(WeightsError, match="no weights file"):
        open_network(trained, "mine.pth")
    side = trained.inputs.images
    for changed, message in (
        (replace(side, weights="file:mine.pth"), "'mine.pth', and where that file lies is not"),
        (replace(side, recipe={"name": "bottom-up"}), "'bottom-up', features that no recipe"),
    ):
        other = replace(trained, inputs=replace(trained.inputs, images=changed))
        with pytest.raises(SearchError, match=message):
            open_network(other)


def test_embeddings_know_the_head_that_made_them(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    write_embeddings(path, embedded(made, load_head(made / "head")))
    first = path.read_bytes()
    # Trained again to the same head: the same bytes.
    write_embeddings(path, embedded(made, train(made, "again")))
    assert path.read_bytes() == first
    found = read_embeddings(path)
    assert head_of(found, path, made / "again").tensors_sha256 is not None

    # The record says the same, but the tensors are others.
    replace(train(made, "other", ridge=0.5), settings={}).save(made / "other")
    with pytest.raises(
        SearchError, match=r"e.h5 was not made .*other.head.json .*differs in tensors_sha256 \(\w"
    ):
        head_of(found, path, made / "other")
    with pytest.raises(HeadError, match="pipeline train"):
        head_of(found, path, made / "nothing")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors_sha256": None}, r"in tensors_sha256 \(nothing in the file, \w+ in the head\)"),
        ({"seed": 5, "inputs": {}}, r"seed \(5 in the file, 0 in the head\), inputs; make it"),
        ({"ensemble": [{}, {}]}, "is an ensemble"),
    ],
)
def test_what_another_head_made_is_refused(
    changes: dict[str, Any], message: str, made: Path
) -> None:
    space = embedded(made, load_head(made / "head"))
    other = replace(space, provenance={**space.provenance, **changes})
    with pytest.raises(SearchError, match=message):
        head_of(other, Path("e.h5"), made / "head")
    with pytest.raises(SearchError, match="does not say which head made it"):
        head_of(replace(space, provenance={}), Path("e.h5"), made / "head")


def test_a_file_of_sentences_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    for text, expected in (("a\nb c\n", ["a", "b c"]), ("é", ["é"])):
        path.write_text(text, encoding="utf-8")
        assert read_sentences(path) == expected
    for data, message in (
        (b"a\n\nb\n", "asked: line 2 of 3, '', is empty"),
        (b"", "line 1 of 1"),
        (b"\xff", "not UTF-8"),
    ):
        path.write_bytes(data)
        with pytest.raises(SearchError, match=message):
            read_sentences(path)
