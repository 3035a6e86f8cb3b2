"""Ranking losses against naive loops over triplets, and their gradients against differences."""

import doctest
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pipeline.heads.losses import ranking
from pipeline.heads.losses.ranking import (
    contrast_with_drawn,
    hardest_negatives,
    hinges_at,
    info_nce,
    max_of_hinges,
    mean_of_hinges,
    sampled_contrast,
    sum_of_hinges,
)
from tests.heads.losses.factories import OWNERS, matrix

Loss = Callable[..., Tensor]


def naive_hinges(
    s: list[list[float]], image_of_caption: list[int], margin: float
) -> list[tuple[list[float], list[float]]]:
    """For every pair its hinges over the captions, and over the images, of others."""
    pairs = []
    for j, i in enumerate(image_of_caption):
        captions = [
            max(0.0, margin - s[i][j] + s[i][c])
            for c in range(len(image_of_caption))
            if image_of_caption[c] != i
        ]
        images = [max(0.0, margin - s[i][j] + s[v][j]) for v in range(len(s)) if v != i]
        pairs.append((captions, images))
    return pairs


@pytest.mark.parametrize("image_of_caption", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_hinges_equal_naive_loops(image_of_caption: list[int], ties: bool) -> None:
    scores, own = (
        matrix(image_of_caption, len(image_of_caption), ties),
        torch.tensor(image_of_caption),
    )
    pairs = naive_hinges(scores.tolist(), image_of_caption, 0.25)
    total = sum(sum(c) + sum(i) for c, i in pairs)
    worst = sum(max(c, default=0.0) + max(i, default=0.0) for c, i in pairs)
    generator = torch.Generator().manual_seed(0)
    assert float(sum_of_hinges(scores, own, 0.25)) == pytest.approx(total, rel=1e-12)
    assert float(max_of_hinges(scores, own, 0.25)) == pytest.approx(worst, rel=1e-12)
    mean = total / max(1, len(scores) - 1)
    assert float(mean_of_hinges(scores, own, 0.25)) == pytest.approx(mean, rel=1e-12)
    everything = sampled_contrast(scores, own, 0.25, 99, generator)
    assert float(everything) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("image_of_caption", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_the_contrastive_loss_equals_naive_loops(image_of_caption: list[int], ties: bool) -> None:
    scores, own = (
        matrix(image_of_caption, len(image_of_caption), ties),
        torch.tensor(image_of_caption),
    )
    s, total = scores.tolist(), 0.0
    for j, i in enumerate(image_of_caption):
        captions = [s[i][c] for c in range(len(image_of_caption)) if image_of_caption[c] != i]
        images = [s[v][j] for v in range(len(s)) if v != i]
        for negatives in (captions, images):
            every = [math.exp((value - s[i][j]) / 0.2) for value in [s[i][j], *negatives]]
            total += math.log(sum(every))
    assert float(info_nce(scores, own, 0.2)) == pytest.approx(total, rel=1e-12, abs=1e-12)
    assert math.isfinite(float(info_nce(scores * 1e6, own, 0.2)))


def test_sampled_contrast_draws_k_distinct_negatives_uniformly() -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 3])
    # Only caption 0 with its image 0 is violated, by the captions of others by 4, 8 and 16.
    scores = torch.zeros(4, 5, dtype=torch.float64)
    scores[image_of_caption, torch.arange(5)] = 99.0
    scores[0] = torch.tensor([0.0, 99.0, 4.0, 8.0, 16.0])
    generator = torch.Generator().manual_seed(3)
    for k, possible in ((1, {4, 8, 16}), (2, {12, 20, 24}), (3, {28}), (4, {28})):
        found = [
            int(sampled_contrast(scores, image_of_caption, 0.0, k, generator)) for _ in range(200)
        ]
        assert set(found) == possible
        assert min(found.count(value) for value in possible) > 40


@pytest.mark.parametrize("k", [1, 3])
def test_contrast_with_drawn_equals_a_naive_loop(k: int) -> None:
    own, drawn = [0, 2, 1, 2], [[1, 2, 4], [0, 1, 0], [3, 3, 2], [4, 0, 1]]
    owners = [*own, *(image for images in drawn for image in images[:k])]
    scores = matrix(sorted(owners), 5)
    s, total = scores.tolist(), 0.0
    for pair, image in enumerate(own):
        for at in range(k):
            caption = len(own) + k * pair + at
            total += max(0.0, 0.25 - s[image][pair] + s[image][caption])
            total += max(0.0, 0.25 - s[image][pair] + s[owners[caption]][pair])
    found = contrast_with_drawn(scores, torch.tensor(owners), 0.25, k)
    assert float(found) == pytest.approx(total, rel=1e-12)


def test_sampled_contrast_is_repeated_by_the_generator_alone() -> None:
    image_of_caption = torch.tensor([0, 1, 1, 2, 3, 4, 5])
    scores = matrix(image_of_caption.tolist(), 1)

    def loss(seed: int) -> float:
        return float(
            sampled_contrast(scores, image_of_caption, 0.3, 2, torch.Generator().manual_seed(seed))
        )

    assert loss(5) == loss(5)
    assert len({loss(seed) for seed in range(9)}) > 3


def test_hardest_negatives_are_the_first_of_equals_and_never_siblings() -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 2])
    scores = torch.tensor([[0, 9, 3, 3, 1], [5, 9, 0, 0, 0], [5, 2, 7, 9, 0]])
    found = hardest_negatives(scores.double(), image_of_caption)
    assert found.captions.tolist() == [2, 2, 1, 2, 2]
    assert found.images.tolist() == [1, 1, 2, 0, 0]


def test_a_batch_of_one_image_costs_nothing_and_its_gradient_is_zero() -> None:
    image_of_caption = torch.tensor([0, 0])
    scores = torch.tensor([[0.1, -0.7]], dtype=torch.float64, requires_grad=True)
    for loss in SCORE_LOSSES.values():
        scores.grad = None
        found = loss(scores, image_of_caption)
        found.backward()
        assert float(found.detach()) == 0.0
        assert scores.grad is not None
        assert not scores.grad.any()


SCORE_LOSSES: dict[str, Loss] = {
    "sum_of_hinges": lambda s, image_of_caption: sum_of_hinges(s, image_of_caption, 0.4),
    "contrastive": lambda s, image_of_caption: info_nce(s, image_of_caption, 0.3),
    "hardest_negative": lambda s, image_of_caption: max_of_hinges(s, image_of_caption, 0.4),
    "sampled_contrast": lambda s, image_of_caption: sampled_contrast(
        s, image_of_caption, 0.4, 2, torch.Generator().manual_seed(0)
    ),
}


@pytest.mark.parametrize("name", SCORE_LOSSES)
def test_gradients_agree_with_differences(name: str) -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(image_of_caption.tolist(), 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: SCORE_LOSSES[name](s, image_of_caption), (scores,))


@pytest.mark.parametrize("name", sorted(set(SCORE_LOSSES) - {"sampled_contrast"}))
def test_the_order_of_the_batch_changes_nothing(name: str) -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(image_of_caption.tolist(), 4)
    images, captions = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 1, 4, 0, 2, 3])
    moved = images.argsort()[image_of_caption[captions]]
    found = SCORE_LOSSES[name](scores[images][:, captions], moved)
    assert float(found) == pytest.approx(
        float(SCORE_LOSSES[name](scores, image_of_caption)), rel=1e-12
    )


def test_hinges_at_given_negatives_may_leave_other_scores_alone() -> None:
    image_of_caption = torch.tensor([0, 1])
    chosen = hardest_negatives(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), image_of_caption)
    scores = torch.tensor([[0.5, 0.4], [0.9, 0.3]])
    assert float(hinges_at(scores, image_of_caption, chosen, 0.2)) == pytest.approx(
        0.1 + 0.8 + 0.6 + 0.3
    )


def test_examples_of_docstrings_run() -> None:
    assert doctest.testmod(ranking) == (0, 6)
