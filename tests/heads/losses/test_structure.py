"""The structure-preserving loss against naive loops, and its gradient against differences."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pipeline.heads.losses.structure import (
    neighbours,
    structure_preserving_loss,
    top_violations,
    unit_distances,
)


def points(
    images: int, seed: int, sentences: int = 9, several: bool = False, dim: int = 5
) -> tuple[torch.Tensor, ...]:
    """Unit vectors of both sides, and which match: each sentence one image, or any number."""
    rng = np.random.default_rng(seed)
    image_of_caption = rng.integers(0, images, sentences)
    image_of_caption[:images] = np.arange(images)
    matches = torch.from_numpy(np.sort(image_of_caption) == np.arange(images)[:, None])
    if several:
        matches = torch.from_numpy(rng.random((images, sentences)) < 0.25)
    x = F.normalize(torch.from_numpy(rng.standard_normal((images, dim))), dim=1)
    y = F.normalize(torch.from_numpy(rng.standard_normal((sentences, dim))), dim=1)
    return x, y, matches


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(((a - b) ** 2).sum() + 1e-4))


def naive_term(anchors: np.ndarray, others: np.ndarray, match: np.ndarray, margin: float,
               k: int) -> float:  # fmt: skip
    """Anchor, positive, negative: a triple loop. Zeros and absent negatives count in the mean."""
    terms = []
    for i, anchor in enumerate(anchors):
        for j, positive in enumerate(others):
            if match[i, j]:
                hinges = [
                    max(0.0, margin + distance(anchor, positive) - distance(anchor, negative))
                    for n, negative in enumerate(others)
                    if not match[i, n]
                ]
                terms.append(sum(sorted(hinges)[::-1][:k]) / min(k, len(others)))
    return float(np.mean(terms)) if terms else 0.0


def naive_within(rows: np.ndarray, match: np.ndarray, margin: float, k: int) -> float:
    """Eq. (3) and (4): a row's neighbours are those that share a match with it."""
    near = np.array([[bool((a & b).any()) for b in match] for a in match])
    apart = near & ~np.eye(len(rows), dtype=bool)
    terms = [
        sum(
            sorted(
                max(0.0, margin + distance(rows[i], rows[j]) - distance(rows[i], rows[n]))
                for n in range(len(rows))
                if not near[i, n]
            )[::-1][:k]
        )
        / min(k, len(rows))
        for i, j in zip(*np.nonzero(apart), strict=True)
    ]
    return float(np.mean(terms)) if terms else 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("images", "several"), [(2, False), (3, False), (9, False), (3, True), (7, True)]
)
@pytest.mark.parametrize(
    ("k", "weights"), [(50, (2.0, 0.0, 0.2)), (2, (1.0, 0.3, 0.0)), (1, (0.0, 2.0, 3.0))]
)
def test_structure_preserving_loss_equals_naive_loops(
    seed: int, images: int, several: bool, k: int, weights: tuple[float, float, float]
) -> None:
    x, y, matches = points(images, seed, several=several)
    found = structure_preserving_loss(x, y, matches, 0.4, k, *weights)
    a, b, match = x.numpy(), y.numpy(), matches.numpy()
    terms = (
        naive_term(b, a, match.T, 0.4, k),
        naive_within(a, match, 0.4, k),
        naive_within(b, match.T, 0.4, k),
    )
    expected = naive_term(a, b, match, 0.4, k) + float(np.dot(weights, terms))
    assert float(found) == pytest.approx(expected, rel=1e-9)
    # Without several images a sentence there is nothing to keep near.
    assert several or terms[1] == 0.0
    assert terms[1] > 0.0 or images < 7 or not several


def test_what_shares_a_match_is_near() -> None:
    matches = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]).bool()
    assert neighbours(matches).int().tolist() == [
        [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]
    ]  # fmt: skip
    assert neighbours(matches.T).int().tolist() == [
        [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]
    ]  # fmt: skip


def test_structure_preserving_gradient() -> None:
    x, y, matches = points(4, 5, several=True)
    x.requires_grad_()
    y.requires_grad_()

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        unit = F.normalize(a, dim=1), F.normalize(b, dim=1)
        return structure_preserving_loss(*unit, matches, 0.4, 3, 2.0, 0.1, 0.2)

    assert torch.autograd.gradcheck(loss, (x, y), eps=1e-6, atol=1e-5)


def test_equal_points_are_a_hundredth_apart_with_a_finite_gradient() -> None:
    x = F.normalize(torch.ones(1, 4), dim=1).requires_grad_()
    apart = unit_distances(x @ x.T)
    assert float(apart.detach()) == pytest.approx(0.01, rel=1e-3)
    apart.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_structure_preserving_loss_of_one_image() -> None:
    x, y, matches = points(1, 0, sentences=2)
    assert float(structure_preserving_loss(x, y, matches, 0.4, 3, 2.0, 0.1, 0.2)) == 0.0
    none = torch.zeros(0, dtype=torch.long)
    d = torch.ones(2, 2)
    assert float(top_violations(none, torch.zeros(0), d, d > 0, 0.1, 5)) == 0.0
