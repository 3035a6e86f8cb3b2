"""Shapes and recipes of features as heads read them, and the checks that heads make."""

import pytest

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_spec import (
    FeatureSpec,
    caption_blocks,
    require_averageable,
    require_grid,
    require_sequence,
    require_vectors,
)


def side(recipe: dict[str, object], *shape: int) -> FeatureSpec:
    return FeatureSpec(shape, {"name": "made", **recipe}, "0" * 16, "none")


def test_caption_parts_and_what_heads_may_ask_of_them() -> None:
    mean: dict[str, object] = {"encoder": "mean", "dim": 50}
    sequence: dict[str, object] = {"encoder": "sequence", "dim": 20, "num_ids": 99}
    both = side({"encoder": "concatenation", "parts": [mean, sequence]}, 70)
    parts = caption_blocks(both)
    assert [(p.kind, p.columns, p.dim) for p in parts] == [
        ("mean", slice(0, 50), 50),
        ("sequence", slice(50, 70), 20),
    ]
    assert caption_blocks(side({}, 3))[0].columns == slice(0, 3)
    assert require_sequence("h", side(sequence, 20)).recipe["num_ids"] == 99
    assert require_vectors("h", side(mean, 50)) == 50
    assert require_grid("h", side({}, 7, 7, 12)) == (49, 12)
    assert require_grid("h", side({}, 36, 12)) == (36, 12)
    for refusal, message in (
        (lambda: require_sequence("h", side(mean, 50)), "'h' reads captions word by word.*'mean'"),
        (lambda: require_sequence("h", both), "'mean' and 'sequence'"),
        (lambda: require_vectors("h", side(sequence, 20)), "token ids are not a vector"),
        (lambda: require_vectors("h", side({}, 7, 7, 12)), r"shape \(7, 7, 12\)"),
        (lambda: require_grid("h", side({}, 12)), "are vectors"),
        (lambda: require_averageable(both), "cannot be averaged"),
        (
            lambda: caption_blocks(side({"encoder": "concatenation", "parts": [mean]}, 51)),
            "blocks of 50",
        ),
    ):
        with pytest.raises(HeadError, match=message):
            refusal()
