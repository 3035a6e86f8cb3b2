"""Known word vectors, by token id."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.inputs.word_vectors import token_vectors
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.encoders.token_ids import FIRST_WORD, TokenIds
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.vectors import load_vectors


def side(recipe: dict[str, object], dim: int) -> FeatureSpec:
    return FeatureSpec((dim,), {"name": "made", **recipe}, "0" * 16, "none")


def test_words_get_their_vectors_by_number(tmp_path: Path) -> None:
    texts = ["a dog runs", "a dog zzzqx"]
    plan = encoder_options("token-ids", vocabulary="all")
    fitting = Fitting(texts, "made", "train")
    encoder = fit_encoder(plan, tmp_path / "e", fitting, texts)
    spec = side(encoder.recipe(), encoder.dim)
    known = token_vectors(spec, tmp_path / "e", "glove-6b-50d")
    assert isinstance(encoder, TokenIds)
    assert known.rows.shape == (encoder.vocab_size, 50)
    vectors = load_vectors("glove-6b-50d", {"dog"})
    number = encoder.vocabulary.index["dog"] + FIRST_WORD
    np.testing.assert_array_equal(known.rows[number], vectors.matrix[vectors.index["dog"]])
    unknown = encoder.vocabulary.index["zzzqx"] + FIRST_WORD
    assert np.isnan(known.rows[[0, 1, 2, 3, unknown]]).all()
    assert np.isfinite(known.rows).all(axis=1).sum() == 3
    assert known.missing == ("zzzqx",)
    with pytest.raises(HeadError, match="of 99; run"):
        token_vectors(side({**encoder.recipe(), "num_ids": 99}, encoder.dim), tmp_path / "e", "x")
