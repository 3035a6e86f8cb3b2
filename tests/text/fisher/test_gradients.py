"""Fisher vectors against automatic differentiation, scikit-image and one caption at a time."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from skimage.feature import fisher_vector
from sklearn.mixture import GaussianMixture

from pipeline.text import EncoderError
from pipeline.text.fisher import gradients as fisher
from pipeline.text.fisher.gradients import power_and_l2, word_gradients
from pipeline.text.fisher.mixture import Mixture

Floats = npt.NDArray[np.float32]
LENGTHS = np.array([3, 0, 1, 7, 0, 0, 2, 12, 1])


def random_mixture(components: int, dim: int, laplace_share: float = 0.5) -> Mixture:
    rng = np.random.default_rng(0)
    shape = (components, dim)
    return Mixture(
        weights=rng.dirichlet(np.ones(components) * 3),
        medians=rng.normal(size=shape),
        scales=rng.uniform(0.5, 2, shape),
        means=rng.normal(size=shape),
        variances=rng.uniform(0.5, 2, shape),
        laplace=rng.random(shape) < laplace_share,
    )


def words(n: int, dim: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0, 1.5, (n, dim)).astype(np.float32)


def fisher_vectors(mixture: Mixture, vectors: Floats, lengths: npt.NDArray[np.integer]) -> Floats:
    gradients = word_gradients(mixture, vectors)
    return gradients.fisher_vectors(np.arange(len(vectors)), lengths)


def gradient_of_the_likelihood(mixture: Mixture, caption: Floats) -> npt.NDArray[np.float64]:
    """The derivatives of sum log p(x) by location and spread, times the stated scalings."""
    x = torch.from_numpy(caption.astype(np.float64))[:, None]
    m, s, mu, sd = (
        torch.from_numpy(array.copy()).requires_grad_()
        for array in (
            mixture.medians,
            mixture.scales,
            mixture.means,
            np.sqrt(mixture.variances),
        )
    )
    laplace = torch.from_numpy(mixture.laplace)
    each = torch.where(
        laplace,
        torch.distributions.Laplace(m, s).log_prob(x),
        torch.distributions.Normal(mu, sd).log_prob(x),
    )
    logs = each.sum(dim=2) + torch.log(torch.from_numpy(mixture.weights))
    torch.logsumexp(logs, dim=1).sum().backward()
    grads = [p.grad.numpy() for p in (m, s, mu, sd) if p.grad is not None]
    root = np.sqrt(len(caption) * mixture.weights)[:, None]
    deviation = np.sqrt(mixture.variances)
    location = np.where(mixture.laplace, grads[0] * mixture.scales, grads[2] * deviation) / root
    of_sd = grads[3] * deviation / np.sqrt(2)
    scale = np.where(mixture.laplace, grads[1] * mixture.scales, of_sd) / root
    return np.concatenate((location.ravel(), scale.ravel()))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("components", "dim"), [(1, 1), (1, 4), (5, 3)])
def test_fisher_vectors_are_gradients_of_the_likelihood(
    components: int, dim: int, share: float
) -> None:
    mixture = random_mixture(components, dim, share)
    vectors = words(LENGTHS.sum(), dim)
    found = fisher_vectors(mixture, vectors, LENGTHS)
    assert found.shape == (len(LENGTHS), 2 * components * dim)
    assert found.dtype == np.float32
    ends = np.cumsum(LENGTHS)
    for row, length, end in zip(found, LENGTHS, ends, strict=True):
        if length:
            expected = gradient_of_the_likelihood(mixture, vectors[end - length : end])
            np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)
        else:
            assert not row.any()


def test_gaussian_fisher_vectors_are_those_of_scikit_image() -> None:
    model = GaussianMixture(4, covariance_type="diag", random_state=0)
    model.fit(words(300, 5).astype(np.float64))
    mixture = gaussian(model)
    caption = words(9, 5, seed=2).astype(np.float64)
    # It has K gradients of the weights in front, the mean over words instead of the sum over
    # sqrt(T), and the scales' gradients with the opposite sign.
    oracle = fisher_vector(caption, model)[4:] * np.sqrt(9)
    oracle[20:] *= -1
    found = fisher_vectors(mixture, caption.astype(np.float32), np.array([9]))[0]
    np.testing.assert_allclose(found, oracle, rtol=1e-4, atol=1e-5)


def gaussian(model: GaussianMixture) -> Mixture:
    means, variances = model.means_, model.covariances_
    none = np.zeros(means.shape, dtype=np.bool_)
    return Mixture(model.weights_, means, np.sqrt(variances), means, variances, none)


def test_gaussian_fisher_vectors_from_sums_of_words_and_their_squares() -> None:
    model = GaussianMixture(4, covariance_type="diag", random_state=0)
    model.fit(words(300, 5).astype(np.float64))
    caption = words(9, 5, seed=2)
    q = model.predict_proba(caption)
    n, sums, squares = q.sum(axis=0)[:, None], q.T @ caption, q.T @ caption**2
    mu, variance = model.means_, model.covariances_
    root = np.sqrt(9 * model.weights_)[:, None]
    location = (sums - n * mu) / np.sqrt(variance) / root
    scale = ((squares - 2 * mu * sums + n * mu**2) / variance - n) / np.sqrt(2) / root
    found = fisher_vectors(gaussian(model), caption, np.array([9]))[0]
    expected = np.concatenate((location.ravel(), scale.ravel()))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_word_at_the_median_counts_as_above() -> None:
    mixture = random_mixture(1, 2, 1.0)
    mixture = replace(mixture, medians=mixture.medians.astype(np.float32).astype(np.float64))
    at_median = mixture.medians.astype(np.float32)
    found = fisher_vectors(mixture, at_median, np.array([1]))[0]
    np.testing.assert_allclose(found, [1, 1, -1, -1])


def normalised(vectors: Floats) -> Floats:
    changed = vectors.copy()
    power_and_l2(changed)
    return changed


def test_a_batch_is_its_captions_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = random_mixture(5, 3)
    vocabulary = words(20, 3)
    gradients = word_gradients(mixture, vocabulary)
    tokens = np.random.default_rng(3).integers(0, 20, LENGTHS.sum())
    tokens[-13:-8] = tokens[-13]  # one word five times in one caption
    ends = np.cumsum(LENGTHS)
    alone = [
        gradients.fisher_vectors(tokens[end - length : end], np.array([length]))[0]
        for length, end in zip(LENGTHS, ends, strict=True)
    ]
    monkeypatch.setattr(fisher, "_WORDS_AT_ONCE", 7)
    batch = gradients.fisher_vectors(tokens, LENGTHS)
    assert np.array_equal(batch, np.array(alone))
    again = word_gradients(mixture, vocabulary).fisher_vectors(tokens, LENGTHS)
    assert batch.tobytes() == again.tobytes()
    by_vectors = fisher_vectors(mixture, vocabulary[tokens], LENGTHS)
    np.testing.assert_allclose(by_vectors, batch, rtol=1e-6, atol=1e-6)
    wide = np.full((len(LENGTHS), 40), 7, dtype=np.float32)
    gradients.fisher_vectors(tokens, LENGTHS, wide[:, 3:33])
    assert np.array_equal(wide[:, 3:33], batch)
    monkeypatch.setattr(fisher, "_NUMBERS_AT_ONCE", 91)
    power_and_l2(wide[:, 3:33])
    assert (wide[:, :3] == 7).all()
    assert (wide[:, 33:] == 7).all()
    assert np.array_equal(wide[:, 3:33], normalised(batch))
    assert np.array_equal(wide[:, 3:33], np.array([normalised(row[None])[0] for row in batch]))


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_captions_without_words_are_rows_of_zeros(lengths: list[int]) -> None:
    found = fisher_vectors(random_mixture(3, 2), words(0, 2), np.array(lengths, dtype=np.int64))
    assert found.shape == (len(lengths), 12)
    assert not normalised(found).any()


def test_components_that_cannot_have_made_a_word_change_nothing() -> None:
    mixture = random_mixture(5, 3)
    vocabulary = words(50, 3) * 30  # far apart: most posteriors are negligible
    gradients = word_gradients(mixture, vocabulary)
    assert 50 <= len(gradients.gradients) < 150
    assert gradients.gradients.dtype == np.float32
    for row, word in enumerate(vocabulary):
        found = gradients.fisher_vectors(np.array([row]), np.array([1]))[0]
        expected = gradient_of_the_likelihood(mixture, word[None])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_power_and_l2() -> None:
    vectors = np.array([[4, -9, 0, 1], [0, 0, 0, 0], [-1e-30, 0, 0, 0]], dtype=np.float32)
    expected = np.array([[2, -3, 0, 1], [0, 0, 0, 0], [-1, 0, 0, 0]], dtype=np.float64)
    expected[0] /= np.sqrt(14)
    power_and_l2(vectors)
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)
    plain = fisher_vectors(random_mixture(5, 30), words(26, 30), LENGTHS)
    some = normalised(plain)
    assert np.array_equal(np.signbit(some), np.signbit(plain))
    norms = np.linalg.norm(some.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, LENGTHS > 0, atol=1e-6)


def test_what_does_not_fit_together_is_refused() -> None:
    mixture = random_mixture(2, 3)
    gradients = word_gradients(mixture, words(4, 3))
    with pytest.raises(EncoderError, match=r"add up to 3 .* expected 2"):
        gradients.fisher_vectors(np.array([0, 1]), np.array([1, 2]))
    with pytest.raises(EncoderError, match="smallest -1"):
        fisher_vectors(mixture, words(2, 3), np.array([3, -1]))
    with pytest.raises(EncoderError, match="from 0 to 4, expected positions in a vocabulary of 4"):
        gradients.fisher_vectors(np.array([0, 4]), np.array([2]))
    with pytest.raises(EncoderError, match=r"shape \(2, 5\), expected \(words, 3\)"):
        fisher_vectors(mixture, words(2, 5), np.array([2]))
    bad = words(3, 3)
    bad[1, 2] = np.inf
    with pytest.raises(EncoderError, match="word vector 1 has NaN"):
        word_gradients(mixture, bad)
