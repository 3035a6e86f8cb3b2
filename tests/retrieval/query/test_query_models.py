"""Queries are embedded as their features were, by no models but those that made the file."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.weights import WeightsError
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.query.picture_features import open_features
from pipeline.retrieval.query.query_embedding import embed_pictures, embed_sentences
from pipeline.retrieval.query.query_models import QueryModels, head_of, open_encoder, open_network
from pipeline.retrieval.query.query_sentences import read_sentences, require_lines
from pipeline.store.errors import PipelineError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.side_by_side import write_view
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitting import Fitting, fit_encoder
from tests.retrieval.query.factories import (
    CAPTIONS,
    ENTRIES,
    FILES,
    embedded,
    encode,
    extract,
    quiet,
    train,
)


def test_queries_lie_where_their_features_put_them(made: Path) -> None:
    trained = load_head(made / "head")
    stored = embedded(made, trained)
    encoder = open_encoder(trained, made / "encoder", CAPTIONS[1:])
    rows = embed_sentences(trained, encoder, CAPTIONS[1:], quiet)
    np.testing.assert_array_equal(rows, stored.caption_embeddings[1:])
    # Another batch size than in the extraction, and then float16.
    both = embed_pictures(trained, open_network(trained), [made / file for file in FILES])
    np.testing.assert_allclose(both, stored.image_embeddings, rtol=2e-3, atol=1e-3)
    assert np.abs(both[0] - both[1]).max() > 0.01
    np.testing.assert_array_equal(both, both.astype(np.float16))
    alone = embed_pictures(trained, open_network(trained, "imagenet"), [made / FILES[1]])
    np.testing.assert_array_equal(alone, both[1:])


def test_several_networks_side_by_side(made: Path) -> None:
    """Features of a picture are the concatenated rows that its shards have."""
    extract(made, "efficientnet-lite0-pool-10crop", "crops")
    write_view(made / "view", [FeatureSet(made / name) for name in ("crops", "images")], "unit")
    view = FeatureSet(made / "view")
    row = open_features(FeatureSpec.of(view), "this").of(made / FILES[0])
    np.testing.assert_allclose(row, view.read([ENTRIES[0].id]), atol=1e-4)
    assert np.linalg.norm(row[0]) == pytest.approx(2**0.5, abs=1e-4)
    with pytest.raises(EmbeddingsError, match="cannot replace the weights of all"):
        open_features(FeatureSpec.of(view), "this", "random:1")


def test_words_that_the_encoder_does_not_know_are_logged_or_refused(made: Path) -> None:
    trained, logged = load_head(made / "head"), list[str]()
    encoder = open_encoder(trained, made / "encoder", [])
    rows = embed_sentences(trained, encoder, ["two qzzyx dogs", "a red fish"], logged.append)
    known = embed_sentences(trained, encoder, ["two dogs", "a red"], quiet)
    np.testing.assert_array_equal(rows, known)
    assert logged == ["unknown words are ignored: fish, qzzyx"]
    with pytest.raises(
        EmbeddingsError, match=r"no word of 1 of 2 queries, first \['qzzyx'\] is known"
    ):
        embed_sentences(trained, encoder, ["a dogs", "qzzyx"], quiet)


def test_pictures_that_cannot_be_decoded_are_refused(made: Path, tmp_path: Path) -> None:
    trained = load_head(made / "head")
    network = open_network(trained)
    (tmp_path / "text.png").write_text("no picture")
    for name, message in (("text.png", "text.png is unreadable"), ("none.png", "is missing")):
        with pytest.raises(EmbeddingsError, match=message):
            embed_pictures(trained, network, [made / FILES[0], tmp_path / name])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\nb c\n", ["a", "b c"]),
        ("é".encode(), ["é"]),
        (b"a\n\nb\n", "asked: line 2 of 3, '', is empty"),
        (b"", "line 1 of 1"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_file_of_sentences_is_read_line_by_line(
    data: bytes, expected: list[str] | str, tmp_path: Path
) -> None:
    path = tmp_path / "asked"
    path.write_bytes(data)
    if isinstance(expected, list):
        assert read_sentences(path) == expected
    else:
        with pytest.raises(EmbeddingsError, match=expected):
            read_sentences(path)
    with pytest.raises(EmbeddingsError, match="2 of 2, 'a\\\\nb', has a line break"):
        require_lines(["a", "a\nb"])


def test_a_word_without_a_vector_is_looked_for_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / "images", tmp_path / "images")
    encode(tmp_path, "mean")
    trained = train(tmp_path, "head")
    logged, loaded = list[str](), list[str]()

    def load(head: TrainedHead, folder: Path, texts: Sequence[str]) -> CaptionEncoder:
        loaded.extend(texts)
        return open_encoder(head, folder, texts)

    models = QueryModels(
        embedded(tmp_path, trained), tmp_path / "e.h5", head=tmp_path / "head",
        encoder=tmp_path / "encoder", weights=None,
    )  # fmt: skip
    models.keep_encoder(CAPTIONS)
    monkeypatch.setattr("pipeline.retrieval.query.query_models.open_encoder", load)
    # Of these only "car" has a vector that was not kept.
    first, again = "two qzzyx dogs", "qzzyx on the grass"
    asked = [first, first, again, "a qzzyx car", "a qzzyx car", "qwwyx grass", "qwwyx qzzyx red"]
    for text in asked:
        found = models.embed_sentences([text], logged.append)
        encoder = open_encoder(trained, tmp_path / "encoder", [text])
        expected = embed_sentences(trained, encoder, [text], logged.append)
        np.testing.assert_array_equal(found, expected)
        assert logged.pop() == logged.pop()
    assert loaded == [first, "a qzzyx car", "a qzzyx car", "qwwyx grass"]


def test_an_encoder_that_was_fitted_to_other_captions_is_refused(
    made: Path, tmp_path: Path
) -> None:
    fitting = Fitting(CAPTIONS[:1], "made", "train")
    fit_encoder(encoder_options("bow", vocabulary="all"), tmp_path / "other", fitting, [])
    with pytest.raises(
        EmbeddingsError, match=r"other holds the encoder 'bow-.*-2'.* on 'bow-.*-6'"
    ):
        open_encoder(load_head(made / "head"), tmp_path / "other", ["a red"])


@pytest.mark.parametrize(
    ("weights", "changes", "error", "message"),
    [
        ("random:4", {}, EmbeddingsError, r"'random:4' .*uses: weights .package:"),
        ("mine.pth", {}, WeightsError, "no weights file"),
        (None, {"weights": "file:mine.pth"}, EmbeddingsError, "path is not recorded"),
        (None, {"recipe": {"name": "bottom-up"}}, EmbeddingsError, "features that no recipe"),
    ],
)
def test_a_network_of_other_or_unknown_weights_is_refused(
    weights: str | None, changes: Any, error: type[PipelineError], message: str, made: Path
) -> None:
    trained = load_head(made / "head")
    inputs = replace(trained.inputs, images=replace(trained.inputs.images, **changes))
    with pytest.raises(error, match=message):
        open_network(replace(trained, inputs=inputs), weights)


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
        EmbeddingsError,
        match=r"e.h5 was not computed .*other.head.json .*differs in tensors_sha256 \(\w",
    ):
        head_of(found, path, made / "other")
    with pytest.raises(HeadError, match="pipeline train"):
        head_of(found, path, made / "nothing")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors_sha256": None}, r"in tensors_sha256 \(nothing in the file, \w+ in the head\)"),
        ({"seed": 5, "inputs": {}}, r"seed \(5 in the file, 0 in the head\), inputs; recompute it"),
        ({"ensemble": [{}, {}]}, "is an ensemble"),
    ],
)
def test_what_another_head_made_is_refused(
    changes: dict[str, Any], message: str, made: Path
) -> None:
    space = embedded(made, load_head(made / "head"))
    other = replace(space, provenance={**space.provenance, **changes})
    with pytest.raises(EmbeddingsError, match=message):
        head_of(other, Path("e.h5"), made / "head")
    with pytest.raises(EmbeddingsError, match="does not record its head"):
        head_of(replace(space, provenance={}), Path("e.h5"), made / "head")


def test_what_is_not_given_is_asked_for_when_it_is_needed(made: Path) -> None:
    space = embedded(made, load_head(made / "head"))
    models = QueryModels(space, Path("e.h5"), head=made / "head", encoder=None, weights=None)
    with pytest.raises(EmbeddingsError, match=r"`encoder=.*`"):
        models.embed_sentences(["a red dog"], quiet)
    assert models.embed_picture(made / FILES[0]).shape == space.image_embeddings[:1].shape
    models = QueryModels(space, Path("e.h5"), head=None, encoder=None, weights=None)
    with pytest.raises(EmbeddingsError, match=r"e.h5 .*`head=...`"):
        models.embed_picture(made / FILES[0])
