"""Losses against naive loops over triplets, and their gradients against differences."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.heads.losses import (
    contrastive,
    cross_attention_loss,
    hardest_negative,
    hardest_negatives,
    hinges_at,
    pooling_loss,
    sampled_contrast,
    structure_preserving_loss,
    sum_of_hinges,
    top_violations,
    unit_distances,
)

OWNERS = [[0, 1], [0, 0, 1], [0, 1, 1, 1, 2], [0, 0, 1, 2, 2, 3, 3, 3, 4], [0], [0, 0, 0]]
Loss = Callable[..., Tensor]


def matrix(owner: list[int], seed: int, ties: bool = False) -> Tensor:
    rng = np.random.default_rng(seed)
    shape = (max(owner) + 1, len(owner))
    scores = rng.integers(-1, 2, shape) / 4 if ties else rng.uniform(-1, 1, shape)
    return torch.from_numpy(scores)


def naive_hinges(
    s: list[list[float]], owner: list[int], margin: float
) -> list[tuple[list[float], list[float]]]:
    """For every pair its hinges over the captions, and over the images, of others."""
    pairs = []
    for j, i in enumerate(owner):
        captions = [
            max(0.0, margin - s[i][j] + s[i][c]) for c in range(len(owner)) if owner[c] != i
        ]
        images = [max(0.0, margin - s[i][j] + s[v][j]) for v in range(len(s)) if v != i]
        pairs.append((captions, images))
    return pairs


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_hinges_equal_naive_loops(owner: list[int], ties: bool) -> None:
    scores, own = matrix(owner, len(owner), ties), torch.tensor(owner)
    pairs = naive_hinges(scores.tolist(), owner, 0.25)
    total = sum(sum(c) + sum(i) for c, i in pairs)
    worst = sum(max(c, default=0.0) + max(i, default=0.0) for c, i in pairs)
    generator = torch.Generator().manual_seed(0)
    assert float(sum_of_hinges(scores, own, 0.25)) == pytest.approx(total, rel=1e-12)
    assert float(hardest_negative(scores, own, 0.25)) == pytest.approx(worst, rel=1e-12)
    everything = sampled_contrast(scores, own, 0.25, 99, generator)
    assert float(everything) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_the_contrastive_loss_equals_naive_loops(owner: list[int], ties: bool) -> None:
    scores, own = matrix(owner, len(owner), ties), torch.tensor(owner)
    s, total = scores.tolist(), 0.0
    for j, i in enumerate(owner):
        captions = [s[i][c] for c in range(len(owner)) if owner[c] != i]
        images = [s[v][j] for v in range(len(s)) if v != i]
        for negatives in (captions, images):
            every = [math.exp((value - s[i][j]) / 0.2) for value in [s[i][j], *negatives]]
            total += math.log(sum(every))
    assert float(contrastive(scores, own, 0.2)) == pytest.approx(total, rel=1e-12, abs=1e-12)
    assert math.isfinite(float(contrastive(scores * 1e6, own, 0.2)))


def test_sampled_contrast_draws_k_distinct_negatives_uniformly() -> None:
    owner = torch.tensor([0, 0, 1, 2, 3])
    # Only caption 0 with its image 0 is violated, by the captions of others by 4, 8 and 16.
    scores = torch.zeros(4, 5, dtype=torch.float64)
    scores[owner, torch.arange(5)] = 99.0
    scores[0] = torch.tensor([0.0, 99.0, 4.0, 8.0, 16.0])
    generator = torch.Generator().manual_seed(3)
    for k, possible in ((1, {4, 8, 16}), (2, {12, 20, 24}), (3, {28}), (4, {28})):
        found = [int(sampled_contrast(scores, owner, 0.0, k, generator)) for _ in range(200)]
        assert set(found) == possible
        assert min(found.count(value) for value in possible) > 40


def test_sampled_contrast_is_repeated_by_the_generator_alone() -> None:
    owner = torch.tensor([0, 1, 1, 2, 3, 4, 5])
    scores = matrix(owner.tolist(), 1)

    def loss(seed: int) -> float:
        return float(sampled_contrast(scores, owner, 0.3, 2, torch.Generator().manual_seed(seed)))

    assert loss(5) == loss(5)
    assert len({loss(seed) for seed in range(9)}) > 3


def test_hardest_negatives_are_the_first_of_equals_and_never_siblings() -> None:
    owner = torch.tensor([0, 0, 1, 2, 2])
    scores = torch.tensor([[0, 9, 3, 3, 1], [5, 9, 0, 0, 0], [5, 2, 7, 9, 0]])
    found = hardest_negatives(scores.double(), owner)
    assert found.captions.tolist() == [2, 2, 1, 2, 2]
    assert found.images.tolist() == [1, 1, 2, 0, 0]


def nodes(owner: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Image nodes (i, 4, 3), and caption nodes (c, 5, 3) of which some are absent."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(max(owner) + 1, 4, 3, dtype=torch.float64, generator=generator)
    captions = torch.randn(len(owner), 5, 3, dtype=torch.float64, generator=generator)
    for j in range(len(owner)):
        captions[j, : j % 4] = 0.0
    return images, captions


def attended(node: np.ndarray, context: np.ndarray) -> float:
    node = node / np.linalg.norm(node)
    units = [x / np.linalg.norm(x) for x in context if x.any()]
    weights = [math.exp(node @ x) for x in units]
    mixed = sum(w * x for w, x in zip(weights, units, strict=True)) / sum(weights)
    return float(node @ mixed)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_yans_losses_equal_naive_loops(owner: list[int], ties: bool) -> None:
    scores, own = matrix(owner, 7, ties), torch.tensor(owner)
    pools = torch.stack([matrix(owner, 20 + p) for p in range(3)])
    images, captions = nodes(owner)
    s, x, y = scores.tolist(), images.numpy(), captions.numpy()
    globally = pool = cross = 0.0
    for j, i in enumerate(owner):
        others = [c for c in range(len(owner)) if owner[c] != i]
        strangers = [v for v in range(len(s)) if v != i]
        words = [w for w in y[j] if w.any()]
        if others:
            c = max(others, key=lambda c: (s[i][c], -c))
            globally += max(0, 0.2 - s[i][j] + s[i][c])
            pool += sum(max(0.0, 0.3 - float(p[i, j]) + float(p[i, c])) for p in pools)
            cross += sum(max(0, 0.4 + attended(n, y[c]) - attended(n, y[j])) for n in x[i])
        if strangers:
            v = max(strangers, key=lambda v: (s[v][j], -v))
            globally += max(0, 0.2 - s[i][j] + s[v][j])
            pool += sum(max(0.0, 0.3 - float(p[i, j]) + float(p[v, j])) for p in pools)
            cross += sum(max(0, 0.4 + attended(w, x[v]) - attended(w, x[i])) for w in words)
    found = pooling_loss(scores, pools, own, 0.2, 0.3, 0.8)
    assert float(found) == pytest.approx(0.2 * globally + 0.8 * pool, rel=1e-12)
    found = cross_attention_loss(scores, images, captions, own, 0.2, 0.4, 0.15)
    assert float(found) == pytest.approx(globally + 0.15 * cross, rel=1e-12)


def test_a_batch_of_one_image_costs_nothing_and_its_gradient_is_zero() -> None:
    owner = torch.tensor([0, 0])
    scores = torch.tensor([[0.1, -0.7]], dtype=torch.float64, requires_grad=True)
    images, captions = (x.requires_grad_() for x in nodes([0, 0]))
    loss = (
        sum_of_hinges(scores, owner, 0.2)
        + hardest_negative(scores, owner, 0.2)
        + sampled_contrast(scores, owner, 0.2, 3, torch.Generator())
        + pooling_loss(scores, scores[None], owner, 0.2, 0.2, 0.8)
        + cross_attention_loss(scores, images, captions, owner, 0.2, 0.2, 0.15)
    )
    loss.backward()
    assert float(loss.detach()) == 0.0
    for leaf in (scores, images, captions):
        assert leaf.grad is not None
        assert not leaf.grad.any()


SCORE_LOSSES: dict[str, Loss] = {
    "sum_of_hinges": lambda s, owner: sum_of_hinges(s, owner, 0.4),
    "contrastive": lambda s, owner: contrastive(s, owner, 0.3),
    "hardest_negative": lambda s, owner: hardest_negative(s, owner, 0.4),
    "sampled_contrast": lambda s, owner: sampled_contrast(
        s, owner, 0.4, 2, torch.Generator().manual_seed(0)
    ),
    "pooling_loss": lambda s, owner: pooling_loss(
        s, torch.stack([s.sin(), s.square()]), owner, 0.4, 0.3, 0.8
    ),
}


@pytest.mark.parametrize("name", SCORE_LOSSES)
def test_gradients_agree_with_differences(name: str) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(owner.tolist(), 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: SCORE_LOSSES[name](s, owner), (scores,))


def test_gradient_of_cross_attention_with_absent_words() -> None:
    owner = [0, 0, 1, 2, 2]
    scores = matrix(owner, 2).requires_grad_()
    images, captions = nodes(owner)
    absent = captions == 0.0

    def loss(s: Tensor, x: Tensor, y: Tensor) -> Tensor:
        y = y.masked_fill(absent, 0.0)
        return cross_attention_loss(s, x, y, torch.tensor(owner), 0.4, 0.3, 0.15)

    inputs = (scores, images.requires_grad_(), captions.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("name", set(SCORE_LOSSES) - {"sampled_contrast"})
def test_the_order_of_the_batch_changes_nothing(name: str) -> None:
    owner = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(owner.tolist(), 4)
    images, captions = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 1, 4, 0, 2, 3])
    moved = images.argsort()[owner[captions]]
    found = SCORE_LOSSES[name](scores[images][:, captions], moved)
    assert float(found) == pytest.approx(float(SCORE_LOSSES[name](scores, owner)), rel=1e-12)


def test_the_order_of_the_batch_changes_no_cross_attention() -> None:
    owner = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(owner.tolist(), 4)
    x, y = nodes(owner.tolist())
    images, captions = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 1, 4, 0, 2, 3])
    moved = images.argsort()[owner[captions]]
    found = cross_attention_loss(
        scores[images][:, captions], x[images], y[captions], moved, 0.2, 0.2, 0.15
    )
    expected = cross_attention_loss(scores, x, y, owner, 0.2, 0.2, 0.15)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)


def test_hinges_at_given_negatives_may_leave_other_scores_alone() -> None:
    owner = torch.tensor([0, 1])
    chosen = hardest_negatives(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), owner)
    scores = torch.tensor([[0.5, 0.4], [0.9, 0.3]])
    assert float(hinges_at(scores, owner, chosen, 0.2)) == pytest.approx(0.1 + 0.8 + 0.6 + 0.3)


def points(images: int, seed: int, sentences: int = 9, dim: int = 5) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    owner = torch.from_numpy(np.sort(rng.integers(0, images, sentences)))
    owner[:images] = torch.arange(images)
    owner = owner.sort().values
    x = F.normalize(torch.from_numpy(rng.standard_normal((images, dim))), dim=1)
    y = F.normalize(torch.from_numpy(rng.standard_normal((sentences, dim))), dim=1)
    return x, y, owner


def naive_structure(
    x: np.ndarray, y: np.ndarray, owner: list[int], margin: float, k: int, l1: float, l3: float
) -> float:
    def d(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a - b) ** 2).sum() + 1e-4))

    def mean_of_tops(terms: list[list[float]], candidates: int) -> float:
        tops = [sum(sorted(t)[::-1][:k]) / min(k, candidates) for t in terms]
        return float(np.mean(tops)) if terms else 0.0

    n, m = len(x), len(y)
    image_anchor, text_anchor, structure = [], [], []
    for j in range(m):
        i = owner[j]
        positive = d(x[i], y[j])
        image_anchor.append(
            [max(0, margin + positive - d(x[i], y[s])) for s in range(m) if owner[s] != i]
        )
        text_anchor.append([max(0, margin + positive - d(x[v], y[j])) for v in range(n) if v != i])
        for p in range(m):
            if p != j and owner[p] == i:
                structure.append(
                    [
                        max(0, margin + d(y[j], y[p]) - d(y[j], y[s]))
                        for s in range(m)
                        if owner[s] != i
                    ]
                )
    image_term, text_term = mean_of_tops(image_anchor, m), mean_of_tops(text_anchor, n)
    return image_term + l1 * text_term + l3 * mean_of_tops(structure, m)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("images", [2, 3, 9])
@pytest.mark.parametrize(("k", "l1", "l3"), [(50, 2.0, 0.2), (2, 1.0, 0.0), (1, 0.0, 3.0)])
def test_structure_preserving_loss_equals_naive_loops(
    seed: int, images: int, k: int, l1: float, l3: float
) -> None:
    x, y, owner = points(images, seed)
    found = structure_preserving_loss(x, y, owner, 0.4, k, l1, l3)
    expected = naive_structure(x.numpy(), y.numpy(), owner.tolist(), 0.4, k, l1, l3)
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_structure_preserving_gradient() -> None:
    x, y, owner = points(3, 5)
    x.requires_grad_()
    y.requires_grad_()

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        unit = F.normalize(a, dim=1), F.normalize(b, dim=1)
        return structure_preserving_loss(*unit, owner, 0.4, 3, 2.0, 0.2)

    assert torch.autograd.gradcheck(loss, (x, y), eps=1e-6, atol=1e-5)


def test_equal_points_are_a_hundredth_apart_with_a_finite_gradient() -> None:
    x = F.normalize(torch.ones(1, 4), dim=1).requires_grad_()
    distance = unit_distances(x @ x.T)
    assert float(distance.detach()) == pytest.approx(0.01, rel=1e-3)
    distance.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_structure_preserving_loss_of_one_image() -> None:
    x, y, owner = points(1, 0, sentences=2)
    assert float(structure_preserving_loss(x, y, owner, 0.4, 3, 2.0, 0.2)) == 0.0
    none = torch.zeros(0, dtype=torch.long)
    d = torch.ones(2, 2)
    assert float(top_violations(none, torch.zeros(0), d, d > 0, 0.1, 5)) == 0.0
