"""Joint embeddings: every paper's settings train through the real trainer, and learn."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.architectures.vse import VseSettings, task
from pipeline.heads.base import FitOptions, settings_from
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.batches import Batch
from pipeline.heads.inputs.feature_rows import ArrayRows, Features
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.losses.ranking import max_of_hinges, mean_of_hinges
from pipeline.retrieval.torch_scores import cosine
from tests.heads.factories import rsum

CONCEPTS, IMAGE, LENGTH, FIRST = 30, 20, 9, 4
IMAGES = FeatureSpec((IMAGE,), {"name": "made"}, "0", "none")
SEQUENCES = FeatureSpec(
    (LENGTH,),
    {"name": "made", "encoder": "sequence", "num_ids": FIRST + CONCEPTS, "layout": {}},
    "1",
    "none",
)
COUNTS = FeatureSpec((CONCEPTS,), {"name": "made", "encoder": "bow"}, "2", "none")

QIAN: dict[str, Any] = {}
ORDER: dict[str, Any] = {
    "similarity": "order",
    "l2_normalise": "both",
    "absolute": True,
    "margin": 0.05,
    "epoch": "images",
    "clip": 2.0,
    "clip_each": True,
}
VSEPP: dict[str, Any] = {
    "similarity": "cosine",
    "l2_normalise": "both",
    "loss": "max_of_hinges",
    "margin": 0.2,
    "lr_decay": 0.1,
    "lr_decay_every": 15,
    "clip": 2.0,
}
KIROS: dict[str, Any] = {
    "cell": "lstm",
    "similarity": "cosine",
    "l2_normalise": "both",
    "loss": "sampled_contrast",
    "margin": 0.2,
    "optimiser": "sgd",
    "learning_rate": 1.0,
    "lr_decay": 0.98,
    "batch_size": 40,
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "qian gru": QIAN,
    "qian stacked bidirectional": {"layers": 2, "bidirectional": True},
    "order-embeddings": ORDER,
    "symmetric": {**ORDER, "similarity": "cosine", "absolute": False, "margin": 0.2},
    "vse++": VSEPP,
    "info_nce": {**VSEPP, "loss": "info_nce"},
    "kiros lstm": KIROS,
    "kiros lstm with peepholes": {**KIROS, "cell": "peephole_lstm"},
    "kiros lstm as printed": {
        **KIROS,
        "cell": "whole_peephole_lstm",
        "loss": "training_contrast",
        "negatives": 3,
    },
    "kiros program": {**VSEPP, "l2_normalise": "captions", "loss": "sum_of_hinges"},
    "kiros linear": {**KIROS, "cell": "none", "optimiser": "adam", "learning_rate": 0.01},
    "devise": {**KIROS, "cell": "none", "train_words": False},
    "pooled states": {**VSEPP, "pooling": "mean", "image_scaling": "standardised"},
    "largest states": {**VSEPP, "pooling": "max", "image_scaling": "unit"},
}


def pairs(images: int, seed: int, counts: bool = False) -> Pairs:
    """Images that hold three of the concepts, each with captions that name two of these."""
    seen = np.random.default_rng(99).standard_normal((CONCEPTS, IMAGE))
    rng = np.random.default_rng(seed)
    held = np.array([rng.choice(CONCEPTS, 3, replace=False) for _ in range(images)])
    image_of_caption = np.repeat(np.arange(images), 3)
    captions = np.zeros((len(image_of_caption), LENGTH), np.float32)
    for row, image in zip(captions, image_of_caption, strict=True):
        start = rng.integers(LENGTH - 1)
        row[start : start + 2] = FIRST + rng.choice(held[image], 2, replace=False)
    if counts:
        captions = np.stack([np.bincount(row.astype(int), minlength=34)[4:] for row in captions])
    features = seen[held].sum(axis=1) + 0.1 * rng.standard_normal((images, IMAGE))
    return Pairs(
        tuple(f"{seed}-{i}" for i in range(images)),
        tuple(f"{seed}-{i}#{k}" for i in range(images) for k in range(3)),
        image_of_caption,
        ArrayRows(features.astype(np.float32)),
        ArrayRows(captions.astype(np.float32)),
    )


def small(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "dim": 32, "word_dim": 32, "epochs": 6, "learning_rate": 0.01, "batch_size": 32, **settings
    }  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_learns_what_can_be_learnt(name: str) -> None:
    words = np.random.default_rng(5).normal(0, 0.25, (FIRST + CONCEPTS, 32)).astype(np.float32)
    head = make_head("vse", small(SYSTEMS[name]), HeadInputs(IMAGES, SEQUENCES))
    history = head.fit(pairs(150, 0), pairs(30, 1), FitOptions(seed=0, words=words))
    assert history[-1]["loss"] < history[0]["loss"]
    assert rsum(head, pairs(50, 2)) > 240  # of 600; chance is about 64


def test_a_bag_of_words_given_as_counts_is_mapped_linearly() -> None:
    settings = small(SYSTEMS["kiros linear"])
    head = make_head("vse", settings, HeadInputs(IMAGES, COUNTS))
    head.fit(pairs(150, 0, counts=True), pairs(30, 1, counts=True), FitOptions(seed=0))
    assert rsum(head, pairs(50, 2, counts=True)) > 300
    assert head.tensors()["caption.0.weight"].shape == (32, CONCEPTS)


def built(words: Features | None = None, **settings: Any) -> tuple[Any, nn.ModuleDict]:
    torch.manual_seed(0)
    kind = settings_from(VseSettings, small(settings), "vse")
    made = task(kind, HeadInputs(IMAGES, SEQUENCES))
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
    made, towers = built(**VSEPP, mean_hinge_epochs=2)
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
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(IMAGE), atol=1e-5, rtol=0)
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
        make_head("vse", small(settings), HeadInputs(IMAGES, SEQUENCES))
