"""Queries are embedded by no head, encoder or weights but those that made the embedding file."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.images.weights import WeightsError
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.query.query_embedding import embed_sentences
from pipeline.retrieval.query.query_models import QueryModels, head_of, open_encoder, open_network
from pipeline.text.encoder_plans import plan_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitting import Fitting, fit_encoder
from tests.retrieval.query.factories import CAPTIONS, FILES, embedded, encode, quiet, train


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
    fit_encoder(plan_encoder("bow", vocabulary="all"), tmp_path / "other", fitting, [])
    with pytest.raises(
        EmbeddingsError, match=r"other holds the encoder 'bow-.*-2'.* on 'bow-.*-6'"
    ):
        open_encoder(load_head(made / "head"), tmp_path / "other", ["a red"])


def test_a_network_of_other_or_unknown_weights_is_refused(made: Path) -> None:
    trained = load_head(made / "head")
    with pytest.raises(EmbeddingsError, match=r"'random:4' .*uses: weights .package:"):
        open_network(trained, "random:4")
    with pytest.raises(WeightsError, match="no weights file"):
        open_network(trained, "mine.pth")
    side = trained.inputs.images
    for changed, message in (
        (replace(side, weights="file:mine.pth"), "'mine.pth', whose path is not recorded"),
        (replace(side, recipe={"name": "bottom-up"}), "'bottom-up', features that no recipe"),
    ):
        other = replace(trained, inputs=replace(trained.inputs, images=changed))
        with pytest.raises(EmbeddingsError, match=message):
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
        EmbeddingsError,
        match=r"e.h5 was not made .*other.head.json .*differs in tensors_sha256 \(\w",
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
