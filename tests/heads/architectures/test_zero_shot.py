"""Features of one model's towers as embeddings: unchanged, and of no other model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_spec import HeadInputs
from tests.heads.factories import all_of, inputs_of_one_model, pairs_of_one_model


def test_nothing_is_learnt_and_nothing_changes() -> None:
    head, pairs = make_head("zero-shot", {}, inputs_of_one_model()), pairs_of_one_model(9)
    history = head.fit(pairs_of_one_model(3), pairs, FitOptions(seed=0))
    assert [entry["text_to_image_r1"] for entry in history] == [100]
    np.testing.assert_array_equal(head.embed_images(pairs.images), all_of(pairs.images))
    np.testing.assert_array_equal(head.embed_captions(pairs.captions), all_of(pairs.captions))
    assert (head.similarity, head.tensors()) == ("cosine", {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights_sha256": "b" * 64, "weights": "q"}, r"'r' .*aaaa.*'q' .*bbbb"),
        ({"recipe": {"name": "m", "encoder": "open-clip", "model": "m-quickgelu"}}, "one model"),
        ({"recipe": {"name": "mean", "encoder": "mean"}}, "need one model.*'mean'"),
        (
            {"recipe": {"name": "m", "encoder": "open-clip", "model": "m", "norm": "l2"}},
            "not a layer, a pool or",
        ),
        ({"shape": (7,)}, "6 dimensions, caption features 7"),
        ({"weights_sha256": ""}, "need one model"),
    ],
)
def test_sides_of_two_spaces_are_refused(changes: dict[str, Any], message: str) -> None:
    both = inputs_of_one_model()
    images, captions = both.images, both.captions
    if changes == {"weights_sha256": ""}:  # of neither side
        images = replace(images, **changes)
    with pytest.raises(HeadError, match=message):
        make_head("zero-shot", {}, HeadInputs(images, replace(captions, **changes)))
