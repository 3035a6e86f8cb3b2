"""Losses on nodes against naive loops, and their gradients against differences."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.heads.losses.nodes import cross_attention_loss, pooling_loss
from tests.heads.losses.factories import OWNERS, matrix


def nodes(image_of_caption: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Image nodes (i, 4, 3), and caption nodes (c, 5, 3) of which some are absent."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(max(image_of_caption) + 1, 4, 3, dtype=torch.float64, generator=generator)
    captions = torch.randn(len(image_of_caption), 5, 3, dtype=torch.float64, generator=generator)
    for j in range(len(image_of_caption)):
        captions[j, : j % 4] = 0.0
    return images, captions


def attended(node: np.ndarray, context: np.ndarray) -> float:
    node = node / np.linalg.norm(node)
    units = [x / np.linalg.norm(x) for x in context if x.any()]
    weights = [math.exp(node @ x) for x in units]
    mixed = sum(w * x for w, x in zip(weights, units, strict=True)) / sum(weights)
    return float(node @ mixed)


@pytest.mark.parametrize("image_of_caption", OWNERS)
@pytest.mark.parametrize("ties", [False, True])
def test_yans_losses_equal_naive_loops(image_of_caption: list[int], ties: bool) -> None:
    scores, own = matrix(image_of_caption, 7, ties), torch.tensor(image_of_caption)
    pools = torch.stack([matrix(image_of_caption, 20 + p) for p in range(3)])
    images, captions = nodes(image_of_caption)
    s, x, y = scores.tolist(), images.numpy(), captions.numpy()
    globally = pool = cross = 0.0
    for j, i in enumerate(image_of_caption):
        others = [c for c in range(len(image_of_caption)) if image_of_caption[c] != i]
        unknown_ids = [v for v in range(len(s)) if v != i]
        words = [w for w in y[j] if w.any()]
        if others:
            c = max(others, key=lambda c: (s[i][c], -c))
            globally += max(0, 0.2 - s[i][j] + s[i][c])
            pool += sum(max(0.0, 0.3 - float(p[i, j]) + float(p[i, c])) for p in pools)
            cross += sum(max(0, 0.4 + attended(n, y[c]) - attended(n, y[j])) for n in x[i])
        if unknown_ids:
            v = max(unknown_ids, key=lambda v: (s[v][j], -v))
            globally += max(0, 0.2 - s[i][j] + s[v][j])
            pool += sum(max(0.0, 0.3 - float(p[i, j]) + float(p[v, j])) for p in pools)
            cross += sum(max(0, 0.4 + attended(w, x[v]) - attended(w, x[i])) for w in words)
    found = pooling_loss(scores, pools, own, 0.2, 0.3, 0.8)
    assert float(found) == pytest.approx(0.2 * globally + 0.8 * pool, rel=1e-12)
    found = cross_attention_loss(scores, images, captions, own, 0.2, 0.4, 0.15)
    assert float(found) == pytest.approx(globally + 0.15 * cross, rel=1e-12)


def pooled(s: Tensor, image_of_caption: Tensor) -> Tensor:
    return pooling_loss(s, torch.stack([s.sin(), s.square()]), image_of_caption, 0.4, 0.3, 0.8)


def test_a_batch_of_one_image_costs_nothing_and_its_gradient_is_zero() -> None:
    image_of_caption = torch.tensor([0, 0])
    scores = torch.tensor([[0.1, -0.7]], dtype=torch.float64, requires_grad=True)
    images, captions = (x.requires_grad_() for x in nodes([0, 0]))
    loss = pooled(scores, image_of_caption) + cross_attention_loss(
        scores, images, captions, image_of_caption, 0.2, 0.2, 0.15
    )
    loss.backward()
    assert float(loss.detach()) == 0.0
    for leaf in (scores, images, captions):
        assert leaf.grad is not None
        assert not leaf.grad.any()


def test_gradient_of_pooling_agrees_with_differences() -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(image_of_caption.tolist(), 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: pooled(s, image_of_caption), (scores,))


def test_gradient_of_cross_attention_with_absent_words() -> None:
    image_of_caption = [0, 0, 1, 2, 2]
    scores = matrix(image_of_caption, 2).requires_grad_()
    images, captions = nodes(image_of_caption)
    absent = captions == 0.0

    def loss(s: Tensor, x: Tensor, y: Tensor) -> Tensor:
        y = y.masked_fill(absent, 0.0)
        return cross_attention_loss(s, x, y, torch.tensor(image_of_caption), 0.4, 0.3, 0.15)

    inputs = (scores, images.requires_grad_(), captions.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)


def test_the_order_of_the_batch_changes_nothing() -> None:
    image_of_caption = torch.tensor([0, 0, 1, 2, 2, 3])
    scores = matrix(image_of_caption.tolist(), 4)
    x, y = nodes(image_of_caption.tolist())
    images, captions = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 1, 4, 0, 2, 3])
    moved = images.argsort()[image_of_caption[captions]]
    found = pooled(scores[images][:, captions], moved)
    assert float(found) == pytest.approx(float(pooled(scores, image_of_caption)), rel=1e-12)
    found = cross_attention_loss(
        scores[images][:, captions], x[images], y[captions], moved, 0.2, 0.2, 0.15
    )
    expected = cross_attention_loss(scores, x, y, image_of_caption, 0.2, 0.2, 0.15)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
