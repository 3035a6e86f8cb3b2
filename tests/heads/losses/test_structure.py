"""The structure-preserving loss against naive loops, and its gradient against differences."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pipeline.heads.losses.structure import (
    structure_preserving_loss,
    top_violations,
    unit_distances,
)


def points(images: int, seed: int, sentences: int = 9, dim: int = 5) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    image_of_caption = torch.from_numpy(np.sort(rng.integers(0, images, sentences)))
    image_of_caption[:images] = torch.arange(images)
    image_of_caption = image_of_caption.sort().values
    x = F.normalize(torch.from_numpy(rng.standard_normal((images, dim))), dim=1)
    y = F.normalize(torch.from_numpy(rng.standard_normal((sentences, dim))), dim=1)
    return x, y, image_of_caption


def naive_structure(
    x: np.ndarray,
    y: np.ndarray,
    image_of_caption: list[int],
    margin: float,
    k: int,
    l1: float,
    l3: float,
) -> float:
    def d(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a - b) ** 2).sum() + 1e-4))

    def mean_of_tops(terms: list[list[float]], candidates: int) -> float:
        tops = [sum(sorted(t)[::-1][:k]) / min(k, candidates) for t in terms]
        return float(np.mean(tops)) if terms else 0.0

    n, m = len(x), len(y)
    image_anchor, text_anchor, structure = [], [], []
    for j in range(m):
        i = image_of_caption[j]
        positive = d(x[i], y[j])
        image_anchor.append(
            [
                max(0, margin + positive - d(x[i], y[s]))
                for s in range(m)
                if image_of_caption[s] != i
            ]
        )
        text_anchor.append([max(0, margin + positive - d(x[v], y[j])) for v in range(n) if v != i])
        for p in range(m):
            if p != j and image_of_caption[p] == i:
                structure.append(
                    [
                        max(0, margin + d(y[j], y[p]) - d(y[j], y[s]))
                        for s in range(m)
                        if image_of_caption[s] != i
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
    x, y, image_of_caption = points(images, seed)
    found = structure_preserving_loss(x, y, image_of_caption, 0.4, k, l1, l3)
    expected = naive_structure(x.numpy(), y.numpy(), image_of_caption.tolist(), 0.4, k, l1, l3)
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_structure_preserving_gradient() -> None:
    x, y, image_of_caption = points(3, 5)
    x.requires_grad_()
    y.requires_grad_()

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        unit = F.normalize(a, dim=1), F.normalize(b, dim=1)
        return structure_preserving_loss(*unit, image_of_caption, 0.4, 3, 2.0, 0.2)

    assert torch.autograd.gradcheck(loss, (x, y), eps=1e-6, atol=1e-5)


def test_equal_points_are_a_hundredth_apart_with_a_finite_gradient() -> None:
    x = F.normalize(torch.ones(1, 4), dim=1).requires_grad_()
    distance = unit_distances(x @ x.T)
    assert float(distance.detach()) == pytest.approx(0.01, rel=1e-3)
    distance.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_structure_preserving_loss_of_one_image() -> None:
    x, y, image_of_caption = points(1, 0, sentences=2)
    assert float(structure_preserving_loss(x, y, image_of_caption, 0.4, 3, 2.0, 0.2)) == 0.0
    none = torch.zeros(0, dtype=torch.long)
    d = torch.ones(2, 2)
    assert float(top_violations(none, torch.zeros(0), d, d > 0, 0.1, 5)) == 0.0
