"""Losses of prefixes against a naive loop, as a setting of heads, and off without a trace."""

from typing import Any

import numpy as np
import pytest
import torch

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.losses.ranking import over_prefixes, sum_of_hinges
from tests.heads.factories import pairs

IMAGES = FeatureSpec((12,), {"name": "made"}, "0", "none")
CAPTIONS = FeatureSpec((10,), {"name": "made", "encoder": "bow"}, "1", "none")
VSE: dict[str, Any] = {
    "cell": "none", "dim": 8, "similarity": "cosine", "l2_normalise": "both", "batch_size": 10,
    "epochs": 2,
}  # fmt: skip
TWO_BRANCH: dict[str, Any] = {"hidden": 8, "dim": 8, "epochs": 2, "batch_size": 20}


def test_the_losses_of_prefixes_are_added_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    images, captions = rng.standard_normal((4, 6)), rng.standard_normal((7, 6))
    owner = np.array([0, 1, 2, 3, 0, 1, 1])

    def naive(dim: int) -> float:
        total = 0.0
        v, s = images[:, :dim], captions[:, :dim]
        if dim < 6:
            v, s = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (v, s))
        for c, i in enumerate(owner):
            for k, j in enumerate(owner):
                total += max(0.0, 0.2 - v[i] @ s[c] + v[i] @ s[k]) * (j != i)
            for j in range(4):
                total += max(0.0, 0.2 - v[i] @ s[c] + v[j] @ s[c]) * (j != i)
        return total

    def loss(v: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return sum_of_hinges(v @ s.T, torch.from_numpy(owner), 0.2)

    sides = torch.from_numpy(images), torch.from_numpy(captions)
    for prefixes, weights, expected in (
        ((), (), naive(6)),
        ((2, 3), (), naive(6) + naive(2) + naive(3)),
        ((2, 3), (0.5, 2.0), naive(6) + 0.5 * naive(2) + 2 * naive(3)),
    ):
        found = over_prefixes(loss, *sides, prefixes, weights)
        assert float(found) == pytest.approx(expected)
    with pytest.raises(ValueError, match="shorter"):  # else a prefix would be left out silently
        over_prefixes(loss, *sides, (2, 3), (1.0,))


@pytest.mark.parametrize(("kind", "settings"), [("vse", VSE), ("two-branch", TWO_BRANCH)])
def test_a_head_trains_its_prefixes_where_it_is_told_to(
    kind: str, settings: dict[str, Any]
) -> None:
    def fitted(**more: Any) -> tuple[Any, float]:
        train = pairs(30, seed=0)
        shapes = (
            FeatureSpec(rows.row_shape, spec.recipe, spec.recipe_hash, spec.weights)
            for rows, spec in ((train.images, IMAGES), (train.captions, CAPTIONS))
        )
        head = make_head(kind, {**settings, **more}, HeadInputs(*shapes))
        history = head.fit(train, pairs(20, seed=1), FitOptions(seed=0))
        return head, history[0]["loss"]

    plain, plain_loss = fitted()
    off, off_loss = fitted(matryoshka=[], matryoshka_weights=[])
    nested, loss = fitted(matryoshka=[2, 4], matryoshka_weights=[2, 1])
    assert off_loss == plain_loss < loss
    assert all(torch.equal(a, off.tensors()[name]) for name, a in plain.tensors().items())
    changed = nested.tensors()
    assert any(not torch.equal(tensor, changed[name]) for name, tensor in plain.tensors().items())
    # Checkpoints from before the setting existed are of the same work.
    assert plain._identity == off._identity
    assert "matryoshka" not in plain._identity[1]
    assert nested._identity[1]["matryoshka"] == (2, 4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"matryoshka": [2, 4, 8]}, "prefix of 8 dimensions, but the embedding space has 8"),
        ({"matryoshka": [4, 2]}, "ascending"),
        ({"matryoshka": [0]}, ">= 1"),
        (
            {"matryoshka": [2], "matryoshka_weights": [1.0, 2.0]},
            "2 matryoshka_weights .* for 1 prefixes; set",
        ),
        ({"matryoshka": [2], "matryoshka_weights": [float("inf")]}, "finite"),
        ({"matryoshka": [2], "similarity": "euclidean"}, "similarity is euclidean"),
    ],
)
def test_prefixes_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadError, match=said):
        make_head("vse", {**VSE, **settings}, HeadInputs(IMAGES, CAPTIONS))
