"""Training scores against the retrieval similarities of the same names, and their gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.retrieval import torch_scores
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.retrieval.torch_scores import SCORES, attended_similarities, order

SETS = [name for name, s in SIMILARITIES.items() if s.sets]


def rows(name: str, images: int = 7, captions: int = 11, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Made rows of both sides, float32; some parts of sets are absent, and one whole caption."""
    rng = np.random.default_rng(seed)
    if name not in SETS:
        x, y = rng.standard_normal((images, 13)), rng.standard_normal((captions, 13))
    else:
        x, y = rng.standard_normal((images, 5, 13)), rng.standard_normal((captions, 8, 13))
        x[0, 1:3] = 0.0
        for j in range(captions):
            y[j, rng.permutation(8)[: j % 8]] = 0.0
    y[-1] = 0.0
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


def test_every_similarity_has_its_score() -> None:
    assert set(SCORES) == set(SIMILARITIES)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_equal_the_retrieval_similarities(name: str, dtype: torch.dtype) -> None:
    similarity = SIMILARITIES[name]
    for images, captions in ((7, 11), (1, 1), (1, 4), (3, 1)):
        x, y = rows(name, images, captions)
        expected = similarity.between(similarity.prepare(x.numpy()), similarity.prepare(y.numpy()))
        found = SCORES[name](x.to(dtype), y.to(dtype)).numpy()
        assert found.shape == (images, captions)
        assert np.abs(found - expected).max() < (1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("name", ["order", *SETS])
def test_blocks_of_captions_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for elements in (1, 1 << 21):
        monkeypatch.setattr(torch_scores, "BLOCK_ELEMENTS", elements)
        x, y = (side.double().requires_grad_() for side in rows(name))
        value = SCORES[name](x, y)
        value.square().sum().backward()
        results.append((value.detach(), x.grad, y.grad))
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_gradients_agree_with_differences(name: str) -> None:
    x, y = rows(name, 3, 5, seed=1)
    no_cell, no_word = x == 0.0, y == 0.0  # a small step would make them present

    def score(a: Tensor, b: Tensor) -> Tensor:
        return SCORES[name](a.masked_fill(no_cell, 0.0), b.masked_fill(no_word, 0.0))

    inputs = (x.double().requires_grad_(), y.double().requires_grad_())
    assert torch.autograd.gradcheck(score, inputs)


@pytest.mark.parametrize("name", SETS)
def test_absent_parts_and_absent_rows_have_finite_gradients(name: str) -> None:
    x, y = rows(name)
    x[2] = 0.0
    x.requires_grad_()
    y.requires_grad_()
    value = SCORES[name](x, y)
    assert not value[2].any()
    assert not value[:, -1].any()
    value.sum().backward()
    for side in (x, y):
        assert side.grad is not None
        assert torch.isfinite(side.grad).all()
        assert not side.grad[(side == 0.0).all(dim=2)].any()


def test_order_asks_captions_to_be_below_their_images() -> None:
    image, caption = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 5.0]])
    assert order(image, caption).item() == -4.0
    assert order(caption, image).item() == -1.0


def test_attended_similarities_of_absent_nodes_and_contexts() -> None:
    x, y = rows(SETS[0])
    found = attended_similarities(x, y[[0, 1, 2, 3, 4, 5, -1]])
    assert found.shape == (7, 5)
    assert not found[0, 1:3].any()
    assert not found[-1].any()
    assert attended_similarities(x[1:2], x[1:2, :1])[0, 0].item() == pytest.approx(1.0)
