"""Queries are embedded as their features would be."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.heads.trained_head import load_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.query_embedding import embed_pictures, embed_sentences
from pipeline.retrieval.query.query_models import open_encoder, open_network
from tests.retrieval.query.factories import CAPTIONS, FILES, embedded, quiet


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


def test_words_that_the_encoder_does_not_know_are_logged_or_refused(made: Path) -> None:
    trained, logged = load_head(made / "head"), list[str]()
    encoder = open_encoder(trained, made / "encoder", [])
    rows = embed_sentences(trained, encoder, ["two qzzyx dogs", "a red fish"], logged.append)
    known = embed_sentences(trained, encoder, ["two dogs", "a red"], quiet)
    np.testing.assert_array_equal(rows, known)
    assert logged == ["bow-w2vv-filterstop-all-6 does not know: fish, qzzyx"]
    with pytest.raises(
        EmbeddingsError, match=r"knows no word of 1 of 2 queries, first \['qzzyx'\]"
    ):
        embed_sentences(trained, encoder, ["a dogs", "qzzyx"], quiet)


def test_pictures_that_cannot_be_decoded_are_refused(made: Path, tmp_path: Path) -> None:
    trained = load_head(made / "head")
    network = open_network(trained)
    (tmp_path / "text.png").write_text("no picture")
    for name, message in (("text.png", "text.png is unreadable"), ("none.png", "is missing")):
        with pytest.raises(EmbeddingsError, match=message):
            embed_pictures(trained, network, [made / FILES[0], tmp_path / name])
