"""Canonical correlation analysis: against two other solvers, and its properties."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
from sklearn.cross_decomposition import CCA

from pipeline.heads import HeadError
from pipeline.heads.architectures.cca import CANDIDATES, FINER, CcaHead, CcaSettings
from pipeline.heads.base import FitOptions, History, settings_from
from pipeline.heads.canonical_correlation import CanonicalCorrelation, Moments, moments_of
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs

Doubles = npt.NDArray[np.float64]
IMAGES, CAPTIONS = 12, 8


def made(counts: list[int], seed: int = 0, noise: float = 0.3) -> tuple[Doubles, Doubles, Any]:
    """Return features of images and captions, and each caption's image, through one fixed world."""
    world = np.random.default_rng(99)
    to_image, to_caption = world.standard_normal((6, IMAGES)), world.standard_normal((6, CAPTIONS))
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((len(counts), 6))
    image_of_caption = np.repeat(np.arange(len(counts)), counts)
    images = meaning @ to_image + noise * rng.standard_normal((len(counts), IMAGES)) + 3.0
    said = meaning[image_of_caption] @ to_caption
    captions = said + noise * rng.standard_normal((len(image_of_caption), CAPTIONS)) - 7.0
    return images, captions, image_of_caption


def pairs(images: Doubles, captions: Doubles, image_of_caption: Any) -> Pairs:
    """Return pairs of these features."""
    return Pairs(
        tuple(f"i{i}" for i in range(len(images))),
        tuple(f"i{i}#{at}" for at, i in enumerate(image_of_caption)),
        image_of_caption.astype(np.int64),
        ArrayRows(images.astype(np.float32)),
        ArrayRows(captions.astype(np.float32)),
    )


def uneven(images: int) -> list[int]:
    return [1 + at % 4 for at in range(images)]


def side(dim: int) -> FeatureSpec:
    return FeatureSpec((dim,), {"name": "made"}, "0" * 16, "none")


def head(images: int = IMAGES, captions: int = CAPTIONS, **settings: Any) -> CcaHead:
    values = settings_from(CcaSettings, settings, "cca")
    return CcaHead(values, HeadInputs(side(images), side(captions)))


def fitted(train: Pairs, **settings: Any) -> tuple[CcaHead, History]:
    cca = head(train.images.row_shape[0], train.captions.row_shape[0], **settings)
    return cca, cca.fit(train, train, FitOptions(seed=0))


def canonical_directions(
    moments: Moments, image_ridge: float, caption_ridge: float, dim: int = 0
) -> tuple[Doubles, Doubles, Doubles]:
    """Return directions of images and of captions, and correlations."""
    found = CanonicalCorrelation(moments).solve(image_ridge, caption_ridge, dim)
    return found.images, found.captions, found.correlations


def rows_of(split: Pairs) -> tuple[Doubles, Doubles]:
    """Return the two sides of all pairs, row by row."""
    every = np.arange(len(split.image_of_caption))
    return (
        split.images.take(split.image_of_caption).astype(np.float64),
        split.captions.take(every).astype(np.float64),
    )


@pytest.mark.parametrize("images", [2, 255, 256, 257, 600])
def test_moments_are_numpys_over_all_pairs(images: int) -> None:
    features, captions, image_of_caption = made(uneven(images))
    split = pairs(
        features + 1000.0, captions, image_of_caption
    )  # far from zero: float32 sums would fail
    x, y = rows_of(split)
    joint = np.cov(np.hstack([x, y]), rowvar=False)
    found = moments_of(split)
    np.testing.assert_allclose(found.image_mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.caption_mean, y.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.images, joint[:IMAGES, :IMAGES], atol=1e-10)
    np.testing.assert_allclose(found.captions, joint[IMAGES:, IMAGES:], atol=1e-10)
    np.testing.assert_allclose(found.cross, joint[:IMAGES, IMAGES:], atol=1e-10)


def test_directions_solve_the_generalised_eigenproblem() -> None:
    m = moments_of(pairs(*made(uneven(90))))
    to_image, to_caption, correlations = canonical_directions(m, 0.5, 0.02)
    cx, cy = m.images + 0.5 * np.eye(IMAGES), m.captions + 0.02 * np.eye(CAPTIONS)
    blocks = scipy.linalg.block_diag(cx, cy)
    joint = np.block([[cx, m.cross], [m.cross.T, cy]])
    values, vectors = scipy.linalg.eigh(joint, blocks)
    values, vectors = values[::-1][:CAPTIONS], vectors[:, ::-1][:, :CAPTIONS]
    np.testing.assert_allclose(1.0 + correlations, values, rtol=1e-10)
    # An eigenvector holds both directions, each of variance 1/2 and of one sign.
    theirs = vectors * np.sqrt(2.0)
    theirs *= np.sign(np.einsum("dk,dk->k", theirs[:IMAGES], to_image))
    np.testing.assert_allclose(to_image, theirs[:IMAGES], atol=1e-8)
    np.testing.assert_allclose(to_caption, theirs[IMAGES:], atol=1e-8)
    np.testing.assert_allclose(to_image.T @ cx @ to_image, np.eye(CAPTIONS), atol=1e-10)
    np.testing.assert_allclose(to_image.T @ m.cross @ to_caption, np.diag(correlations), atol=1e-10)


def test_either_side_may_be_the_wider() -> None:
    m = moments_of(pairs(*made(uneven(90))))
    other = Moments(
        m.caption_mean, m.image_mean, m.captions, m.images, m.cross.T, m.caption_rank, m.image_rank
    )
    to_image, to_caption, correlations = canonical_directions(m, 0.5, 0.02)
    swapped = canonical_directions(other, 0.02, 0.5)
    np.testing.assert_allclose(swapped[2], correlations, rtol=1e-12)
    sign = np.sign(np.einsum("dk,dk->k", swapped[1], to_image))
    np.testing.assert_allclose(swapped[1] * sign, to_image, atol=1e-10)
    np.testing.assert_allclose(swapped[0] * sign, to_caption, atol=1e-10)


def test_correlations_are_sklearns() -> None:
    split = pairs(*made(uneven(120), noise=1.0))
    x, y = rows_of(split)
    u, v = CCA(n_components=4, scale=False, max_iter=10_000, tol=1e-14).fit_transform(x, y)
    theirs = [np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(4)]
    ours = canonical_directions(moments_of(split), 0.0, 0.0)[2]
    np.testing.assert_allclose(ours[:4], theirs, atol=1e-6)


def test_correlations_do_not_depend_on_the_coordinates() -> None:
    features, captions, image_of_caption = made(uneven(100))
    rng = np.random.default_rng(3)
    turned = pairs(
        features @ rng.standard_normal((IMAGES, IMAGES)) + 5.0,
        captions @ rng.standard_normal((CAPTIONS, CAPTIONS)),
        image_of_caption,
    )
    one, other = (
        canonical_directions(moments_of(p), 1e-10, 1e-10)[2]
        for p in (pairs(features, captions, image_of_caption), turned)
    )
    np.testing.assert_allclose(one, other, atol=1e-4)  # features are rounded to float32


def test_embeddings_are_scaled_coordinates_of_length_one() -> None:
    train, test = pairs(*made(uneven(80))), pairs(*made(uneven(30), seed=1))
    m = moments_of(train)
    added = [1e-3 * np.linalg.eigvalsh(c)[-1] + 1e-8 for c in (m.images, m.captions)]
    to_image, to_caption, rho = canonical_directions(m, *added, dim=5)  # type: ignore[misc]
    fixed = {"image_ridge": 1e-3, "caption_ridge": 1e-3, "dim": 5}
    for settings, scale in (
        ({}, rho),
        ({"power": 0.0}, np.ones(5)),
        ({"scaling": "eigenvalue", "power": 4.0}, (1 + rho) ** 4),
    ):
        cca, _ = fitted(train, **fixed, **settings)
        for ours, rows, mean, directions in (
            (cca.embed_images(test.images), test.images, m.image_mean, to_image),
            (cca.embed_captions(test.captions), test.captions, m.caption_mean, to_caption),
        ):
            expected = (rows.take(np.arange(len(rows))) - mean) @ directions * scale
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_absolute_ridges_are_added_as_they_are() -> None:
    train = pairs(*made(uneven(60)))
    cca, _ = fitted(train, regularisation="absolute", image_ridge=0.5, caption_ridge=0.02)
    expected = canonical_directions(moments_of(train), 0.5, 0.02)[2]
    np.testing.assert_array_equal(cca.tensors()["correlations"].numpy(), expected)


def test_validation_chooses_the_ridges_left_open() -> None:
    train, validation = pairs(*made(uneven(15))), pairs(*made(uneven(40), seed=1))
    cca = head()
    steps: list[tuple[int, int]] = []
    history = cca.fit(
        train, validation, FitOptions(0, lambda done, total, _: steps.append((done, total)))
    )
    assert steps == [(at, 33) for at in range(34)]
    tried = [(entry["image_ridge"], entry["caption_ridge"]) for entry in history]
    assert set(tried[:25]) == {(a, b) for a in CANDIDATES for b in CANDIDATES}
    first = max(history[:25], key=lambda entry: entry["rsum"])
    image_ridge, caption_ridge = first["image_ridge"], first["caption_ridge"]
    assert set(tried[25:]) == {
        (image_ridge * a, caption_ridge * b) for a in FINER for b in FINER if (a, b) != (1.0, 1.0)
    }
    assert [entry["epoch"] for entry in history] == list(range(1, 34))
    best = max(history, key=lambda entry: entry["rsum"])
    assert [entry["best"] for entry in history] == [float(entry is best) for entry in history]
    alone = head(image_ridge=best["image_ridge"], caption_ridge=best["caption_ridge"])
    (only,) = alone.fit(train, validation, FitOptions(seed=0))
    assert only["rsum"] == best["rsum"]
    assert only["best"] == 1.0
    np.testing.assert_array_equal(
        cca.embed_captions(validation.captions), alone.embed_captions(validation.captions)
    )
    half = head(image_ridge=0.5).fit(train, validation, FitOptions(seed=0))
    assert [entry["caption_ridge"] for entry in half[:5]] == list(CANDIDATES)
    assert len(half) == 7


def test_signs_are_fixed() -> None:
    features, captions, image_of_caption = made(uneven(70))
    straight = canonical_directions(
        moments_of(pairs(features, captions, image_of_caption)), 0.1, 0.1
    )
    turned = canonical_directions(
        moments_of(pairs(features, -captions, image_of_caption)), 0.1, 0.1
    )
    largest = np.abs(straight[0]).argmax(axis=0)
    assert (straight[0][largest, np.arange(CAPTIONS)] > 0).all()
    np.testing.assert_allclose(turned[0], straight[0], atol=1e-9)
    np.testing.assert_allclose(turned[1], -straight[1], atol=1e-9)


@pytest.mark.parametrize("scaling", ["unit", "rooted"])
def test_scaled_images_are_those_that_were_scaled_before(scaling: str) -> None:
    images, captions, image_of_caption = made([2, 1, 3, 2, 1, 2, 2, 3, 1, 2])
    images[0] = 0.0
    roots = np.sign(images) * np.sqrt(np.abs(images)) if scaling == "rooted" else images
    norms = np.linalg.norm(roots, axis=1, keepdims=True)
    unit = roots / np.where(norms > 0, norms, 1)
    given = {"image_ridge": 0.1, "caption_ridge": 0.1}
    scaled, _ = fitted(pairs(images, captions, image_of_caption), image_scaling=scaling, **given)
    plain, _ = fitted(pairs(unit, captions, image_of_caption), **given)
    np.testing.assert_allclose(
        scaled.embed_images(ArrayRows(images.astype(np.float32))),
        plain.embed_images(ArrayRows(unit.astype(np.float32))),
        atol=1e-5,
    )


def test_features_that_never_vary_change_nothing() -> None:
    features, captions, image_of_caption = made(uneven(60))
    wider = np.insert(features, [0, 5, 12], 0.1, axis=1)
    plain, _ = fitted(
        pairs(features, captions, image_of_caption), image_ridge=1e-3, caption_ridge=1e-3
    )
    train = pairs(wider, np.insert(captions, 3, -2.0, axis=1), image_of_caption)
    constant, _ = fitted(train, image_ridge=1e-3, caption_ridge=1e-3)
    np.testing.assert_allclose(
        constant.embed_images(train.images),
        plain.embed_images(ArrayRows(features.astype(np.float32))),
        atol=1e-5,
    )
    mean_row = ArrayRows(constant.tensors()["image.mean"].numpy().astype(np.float32)[None])
    assert np.isfinite(constant.embed_images(mean_row)).all()


def test_what_has_no_solution_is_refused() -> None:
    features, captions, image_of_caption = made([2] * 20)
    constant = np.full_like(captions, 0.25)
    rank_one = captions[:, :1] * np.arange(1, captions.shape[1] + 1)
    wide = np.repeat(features, 4, axis=1)
    for x in (features, wide, 0 * features, 0 * wide):
        for y in (constant, 0 * captions, *([] if x.any() else [captions, rank_one])):
            with pytest.raises(HeadError, match="training split do not correlate"):
                fitted(pairs(x, y, image_of_caption), regularisation="relative")
    for y in (rank_one, captions - captions.mean(axis=1, keepdims=True)):
        head, _ = fitted(pairs(wide, y, image_of_caption), regularisation="relative")
        assert np.isfinite(head.embed_captions(ArrayRows(y.astype(np.float32)))).all()
    singular = replace(
        moments_of(pairs(features, captions, image_of_caption)), images=np.zeros((12, 12))
    )
    with pytest.raises(HeadError, match="numerically singular"):
        canonical_directions(singular, 0.0, 0.0)
    with pytest.raises(HeadError, match="numerically singular"):
        canonical_directions(singular, 1e-8, 0.0)  # correlations far above 1
