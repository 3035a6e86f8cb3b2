"""The order similarity and cross attention against plain loops that follow the papers."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.retrieval import similarity
from pipeline.retrieval.similarity import CROSS_ATTENTIONS, SIMILARITIES

Array = npt.NDArray[np.float32]


def between(name: str, images: Array, captions: Array) -> npt.NDArray[np.float64]:
    s = SIMILARITIES[name]
    return s.between(s.prepare(images), s.prepare(captions))


@pytest.mark.parametrize(("images", "captions", "dim"), [(1, 1, 1), (3, 7, 5), (5, 2, 33)])
@pytest.mark.parametrize("elements", [1, 12, 1 << 15])
def test_order_equals_plain_loops(
    images: int, captions: int, dim: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "_ORDER_ELEMENTS", elements)
    rng = np.random.default_rng(dim)
    v = rng.standard_normal((images, dim)).astype(np.float32)
    s = rng.standard_normal((captions, dim)).astype(np.float32)
    expected = [
        [-sum(max(0.0, float(b) - float(a)) ** 2 for a, b in zip(i, c, strict=True)) for c in s]
        for i in v
    ]
    assert np.allclose(between("order", v, s), expected, rtol=1e-13, atol=0)


def naive_scan(name: str, image: Array, caption: Array) -> float:
    """Equations 1-8 of the paper, one pair at a time, with the attended vectors themselves."""
    asking, attended = (caption, image) if "t2i" in name else (image, caption)
    queries = [q / np.linalg.norm(q) for q in asking.astype(np.float64) if q.any()]
    context = [x / np.linalg.norm(x) for x in attended.astype(np.float64) if x.any()]
    if not queries or not context:
        return 0.0
    clipped = [[max(0.0, x @ q) for q in queries] for x in context]
    norms = [math.sqrt(sum(c * c for c in row)) or 1.0 for row in clipped]
    lambda_1 = 9.0 if "t2i" in name else 4.0
    relevances = []
    for k, q in enumerate(queries):
        weights = [
            math.exp(lambda_1 * row[k] / norm) for row, norm in zip(clipped, norms, strict=True)
        ]
        mixed = sum(w / sum(weights) * x for w, x in zip(weights, context, strict=True))
        relevances.append(float(q @ mixed / np.linalg.norm(mixed)))
    if "avg" in name:
        return sum(relevances) / len(relevances)
    lambda_2 = 6.0 if "t2i" in name else 5.0
    return math.log(sum(math.exp(lambda_2 * r) for r in relevances)) / lambda_2


def sets(rows: int, parts: int, dim: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((rows, parts, dim)).astype(np.float32)
    for row in range(rows):
        made[row, rng.permutation(parts)[: row % (parts + 1)]] = 0.0
    return made


@pytest.mark.parametrize("name", CROSS_ATTENTIONS)
@pytest.mark.parametrize("elements", [1, 1 << 16])
def test_cross_attention_equals_plain_loops(
    name: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "_ATTENTION_ELEMENTS", elements)
    images, captions = sets(9, 4, 5, 0), sets(17, 7, 5, 1)
    expected = [[naive_scan(name, i, c) for c in captions] for i in images]
    assert np.allclose(between(name, images, captions), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CROSS_ATTENTIONS)
def test_padding_lengths_and_order_of_parts_change_nothing(name: str) -> None:
    images, captions = sets(4, 5, 6, 2), sets(6, 3, 6, 3)
    expected = between(name, images, captions)
    padded = np.zeros((6, 9, 6), dtype=np.float32)
    padded[:, [7, 0, 4]] = captions * 1024
    assert np.allclose(between(name, images, padded), expected, rtol=1e-13, atol=1e-13)
    assert not between(name, images * 0, captions).any()
    assert not between(name, images, captions * 0).any()


@pytest.mark.parametrize("name", CROSS_ATTENTIONS)
def test_orthogonal_and_opposite_parts_are_finite(name: str) -> None:
    x = np.eye(4, dtype=np.float32)
    image = np.stack([x[0], -x[0], x[1]])[None]
    captions = np.stack([x[2:4], np.stack([-x[0], -x[1]]), x[:2]])
    scores = between(name, image, captions)
    assert np.isfinite(scores).all()
    assert scores[0, 2] > scores[0, 0]
    # Opposite parts with equal weights: what is attended to has no length and no direction.
    assert np.isfinite(between(name, np.stack([x[0], -x[0]])[None], x[None, 2:4])).all()
