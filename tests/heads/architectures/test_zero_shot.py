"""Features of one model's towers as embeddings: unchanged, and of no other model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs

IMAGES = FeatureSpec((6,), {"name": "m.tag", "backbone": "m"}, "0" * 16, "random:0", "a" * 64)
CAPTIONS = FeatureSpec(
    (6,), {"name": "m.tag", "encoder": "open-clip", "model": "m"}, "1" * 16, "random:0", "a" * 64
)


def made_pairs(images: int) -> Pairs:
    """Return pairs of two captions an image, the same vectors on both sides."""
    rows = np.random.default_rng(0).standard_normal((images, 6)).astype(np.float32)
    image_of_caption = np.repeat(np.arange(images), 2)
    return Pairs(
        tuple(f"{i}" for i in range(images)),
        tuple(f"{i}#{k}" for i in range(images) for k in range(2)),
        image_of_caption,
        ArrayRows(rows),
        ArrayRows(rows[image_of_caption]),
    )


def test_nothing_is_learnt_and_nothing_changes() -> None:
    head = make_head("zero-shot", {}, HeadInputs(IMAGES, CAPTIONS))
    pairs = made_pairs(9)
    history = head.fit(made_pairs(3), pairs, FitOptions(seed=0))
    assert [entry["epoch"] for entry in history] == [1]
    assert history[0]["text_to_image_r1"] == 100
    every = np.arange(9)
    np.testing.assert_array_equal(head.embed_images(pairs.images), pairs.images.take(every))
    assert head.embed_captions(pairs.captions).shape == (18, 6)
    assert (head.similarity, head.tensors()) == ("cosine", {})
    with pytest.raises(HeadError, match="no setting 'dim'"):
        make_head("zero-shot", {"dim": 3}, HeadInputs(IMAGES, CAPTIONS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights_sha256": "b" * 64, "weights": "random:1"}, r"random:0'.*aaaa.*random:1'.*bbbb"),
        ({"recipe": {**CAPTIONS.recipe, "model": "m-quickgelu"}}, "need one model"),
        ({"recipe": {"name": "mean", "encoder": "mean"}}, "need one model.*'mean'"),
        ({"shape": (7,)}, "6 dimensions, caption features 7"),
        ({"shape": (2, 3)}, "one vector per row"),
    ],
)
def test_sides_of_two_spaces_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadError, match=message):
        make_head("zero-shot", {}, HeadInputs(IMAGES, replace(CAPTIONS, **changes)))
    if "weights_sha256" in changes:
        both = HeadInputs(replace(IMAGES, weights_sha256=""), replace(CAPTIONS, weights_sha256=""))
        with pytest.raises(HeadError, match="need one model"):
            make_head("zero-shot", {}, both)
