"""Joint embeddings: every paper's settings train through the real trainer, and learn."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.architectures.vse import VseSettings, task
from pipeline.heads.base import FitOptions, settings_from
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.batches import Batch
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.losses.ranking import max_of_hinges, mean_of_hinges
from pipeline.retrieval.torch_scores import cosine
from tests.heads.factories import (
    CHANNELS,
    COUNTS,
    SEQUENCE,
    VOCAB_SIZE,
    inputs_of_parts,
    rsum,
    vector_pairs,
)

WORDS, OF_COUNTS = (inputs_of_parts((CHANNELS,), part) for part in (SEQUENCE, COUNTS))

SYSTEMS = (
    "qian2018-gru", "qian2018-gru-glove-stacked-bidirectional", "vendrov2016-order",
    "vendrov2016-symmetric", "vsepp", "kiros2014-lstm", "kiros2014-lstm-whole-peepholes",
    "kiros2014-lstm-training-contrast", "kiros2014-gru", "kiros2014-linear", "kiros2014-devise",
    "ours-gru",
)  # fmt: skip


def pairs(images: int, seed: int) -> Pairs:
    return vector_pairs(images, SEQUENCE, seed=seed)


def small(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings at a small size; SGD keeps the learning rate of its paper."""
    rate = 0.01 if settings.get("optimiser") != "sgd" else settings["learning_rate"]
    return {
        **settings, "dim": 32, "word_dim": 32, "epochs": 6, "learning_rate": rate, "batch_size": 32
    }  # fmt: skip


def system(name: str) -> dict[str, Any]:
    return small(resolve_experiment(name, size="paper").settings)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_learns_what_can_be_learnt(name: str) -> None:
    words = np.random.default_rng(5).normal(0, 0.25, (VOCAB_SIZE, 32)).astype(np.float32)
    slow = {"epochs": 12} if name.startswith("kiros2014-lstm-") else {}
    head = make_head("vse", system(name) | slow, WORDS)
    history = head.fit(pairs(150, 0), pairs(30, 1), FitOptions(seed=0, words=words))
    assert history[-1]["loss"] < history[0]["loss"]
    assert rsum(head, pairs(50, 2)) > 300  # of 600; chance is about 64


def test_a_bag_of_words_given_as_counts_is_mapped_linearly() -> None:
    head = make_head("vse", system("kiros2014-linear"), OF_COUNTS)
    train, validation, test = (vector_pairs(n, COUNTS, seed=n) for n in (150, 30, 50))
    head.fit(train, validation, FitOptions(seed=0))
    assert rsum(head, test) > 250
    assert head.tensors()["caption.0.weight"].shape == (32, VOCAB_SIZE)


def built(words: Features | None = None, **settings: Any) -> tuple[Any, nn.ModuleDict]:
    torch.manual_seed(0)
    made = task(settings_from(VseSettings, small(settings), "vse"), WORDS)
    return made, made.build(words)


def batch() -> Batch:
    made = pairs(12, 3)
    rows = np.arange(36)
    return Batch(
        torch.from_numpy(made.images.take(rows[:12])),
        torch.from_numpy(made.captions.take(rows)),
        torch.from_numpy(made.image_of_caption),
    )


def test_unit_and_absolute_say_which_side_they_change() -> None:
    given = batch()
    for unit, absolute in (("neither", False), ("both", True), ("captions", False)):
        _, towers = built(l2_normalise=unit, absolute=absolute)
        images, captions = towers["image"](given.images), towers["caption"](given.captions)
        for side, rows in (("images", images), ("captions", captions)):
            is_unit = bool((rows.norm(dim=1) - 1).abs().max() < 1e-5)
            assert is_unit == (unit in ("both", side))
            assert bool((rows >= 0).all()) == absolute


def test_image_vectors_as_they_are_weigh_in_training_only() -> None:
    """Kiros' program: long image vectors make larger hinges; cosine retrieval ignores lengths."""
    given = batch()
    made, towers = built(similarity="cosine", l2_normalise="captions", margin=0.2)
    scores = (towers["image"](given.images) @ towers["caption"](given.captions).T).tolist()
    image_of_caption = given.image_of_caption.tolist()
    naive = sum(
        max(0.0, 0.2 - scores[i][c] + scores[j][k])
        for c, i in enumerate(image_of_caption)
        for j, k in [
            *((i, k) for k, other in enumerate(image_of_caption) if other != i),
            *((j, c) for j in range(12) if j != i),
        ]
    )
    loss = made.loss(towers, given, 0, torch.Generator())
    assert loss.item() == pytest.approx(naive, rel=1e-4)


def test_hardest_negatives_come_after_the_warm_up() -> None:
    given = batch()
    made, towers = built(**system("vsepp"), mean_hinge_epochs=2)
    with torch.no_grad():
        scores = cosine(towers["image"](given.images), towers["caption"](given.captions))
    every = float(mean_of_hinges(scores, given.image_of_caption, 0.2))
    hardest = float(max_of_hinges(scores, given.image_of_caption, 0.2))
    found = [made.loss(towers, given, epoch, torch.Generator()).item() for epoch in range(4)]
    assert found == pytest.approx([every, every, hardest, hardest])


def test_standardised_images_have_the_training_splits_statistics() -> None:
    train = pairs(40, 0)
    made, towers = built(image_scaling="standardised")
    made.prepare(towers, train)
    x = torch.from_numpy(train.images.take(np.arange(40)))
    seen = towers["image"][0](x)  # type: ignore[index]
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(CHANNELS), atol=1e-5, rtol=0)
    assert float(seen.square().mean()) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "none", "dim": 16}, "word_dim"),
        ({"bidirectional": True, "dim": 15}, "even"),
        ({"cell": "peephole_lstm", "layers": 2}, "one layer and one direction"),
        ({"cell": "whole_peephole_lstm", "bidirectional": True}, "one direction"),
        ({"loss": "training_contrast", "epoch": "images"}, "set epoch to captions"),
    ],
)
def test_what_cannot_be_is_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadError, match=message):
        make_head("vse", {"dim": 32, "word_dim": 32, **settings}, WORDS)
