"""EM and densities of the mixtures against loops, scipy, scikit-learn and known truth."""

import warnings
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pipeline.text import EncoderError
from pipeline.text.fisher import em as gaussian
from pipeline.text.fisher import em as hybrid
from pipeline.text.fisher.em import fit_gaussian, fit_hybrid
from pipeline.text.fisher.mixture import Mixture

Doubles = npt.NDArray[np.float64]


def random_mixture(components: int, dim: int, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    shape = (components, dim)
    return Mixture(
        weights=rng.dirichlet(np.ones(components) * 3),
        medians=rng.normal(size=shape),
        scales=rng.uniform(0.3, 2, shape),
        means=rng.normal(size=shape),
        variances=rng.uniform(0.3, 2, shape),
        laplace=rng.random(shape) < 0.5,
    )


def samples(n: int, dim: int, seed: int = 0) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 2, (4, dim))[rng.integers(0, 4, n)]
    return (centres + rng.laplace(0, 0.7, (n, dim))).astype(np.float32)


def mean_log_likelihood(mixture: Mixture, x: npt.NDArray[np.float32]) -> float:
    return float(logsumexp(mixture.log_components(x), axis=1).mean())


@pytest.mark.parametrize(("n", "components", "dim"), [(0, 2, 3), (1, 1, 1), (7, 3, 4), (257, 5, 2)])
def test_log_components_and_posteriors_against_scipy(n: int, components: int, dim: int) -> None:
    mixture = random_mixture(components, dim)
    x = samples(n, dim)
    expected = np.empty((n, components))
    for k in range(components):
        as_laplace = stats.laplace.logpdf(x, mixture.medians[k], mixture.scales[k])
        as_gauss = stats.norm.logpdf(x, mixture.means[k], np.sqrt(mixture.variances[k]))
        each = np.where(mixture.laplace[k], as_laplace, as_gauss)
        expected[:, k] = np.log(mixture.weights[k]) + each.sum(axis=1)
    np.testing.assert_allclose(mixture.log_components(x), expected, rtol=1e-12)
    posteriors = np.exp(expected - logsumexp(expected, axis=1, keepdims=True))
    np.testing.assert_allclose(mixture.posteriors(x), posteriors, rtol=1e-9, atol=1e-300)


def test_posteriors_far_from_every_component_are_finite() -> None:
    far = np.full((3, 4), 1e4, dtype=np.float32)
    posteriors = random_mixture(3, 4).posteriors(far)
    np.testing.assert_allclose(posteriors.sum(axis=1), 1)


@pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1500])
def test_weighted_medians_against_cumulative_sums(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.integers(-40, 40, (n, 3)).astype(np.float32)  # many equal values
    weights = rng.integers(0, 9, (n, 4)) / 8  # exact sums, so that half is met exactly at times
    weights[:, 1] = 1.0
    weights[0, 2] = 1e6  # one sample has more than half
    expected = np.empty((4, 3))
    for k in range(4):
        for d in range(3):
            total = weights[:, k].sum()
            reached = 0.0
            for row in np.argsort(x[:, d], kind="stable"):
                reached += weights[row, k]
                if reached >= total / 2:
                    expected[k, d] = x[row, d]
                    break
    found = hybrid._weighted_medians(x, hybrid._sorted_order(x), weights)
    assert np.array_equal(found, expected)


def naive_m_step(x: Doubles, posteriors: Doubles) -> Mixture:
    components, dim = posteriors.shape[1], x.shape[1]
    names = ("medians", "scales", "means", "variances")
    made = {name: np.empty((components, dim)) for name in names}
    laplace = np.empty((components, dim), dtype=np.bool_)
    for k in range(components):
        gamma = posteriors[:, k]
        for d in range(dim):
            column = x[:, d]
            order = np.argsort(column)
            reached = np.cumsum(gamma[order]) >= gamma.sum() / 2
            m = column[order][np.argmax(reached)]
            s = max((gamma * np.abs(column - m)).sum() / gamma.sum(), 1e-3)
            mu = (gamma * column).sum() / gamma.sum()
            variance = max((gamma * (column - mu) ** 2).sum() / gamma.sum(), 1e-3)
            as_laplace = (gamma * stats.laplace.logpdf(column, m, s)).sum()
            as_gauss = (gamma * stats.norm.logpdf(column, mu, np.sqrt(variance))).sum()
            for name, value in zip(names, (m, s, mu, variance), strict=True):
                made[name][k, d] = value
            laplace[k, d] = as_laplace > as_gauss
    return Mixture(posteriors.sum(axis=0) / len(x), **made, laplace=laplace)


def assert_close(found: Mixture, expected: Mixture, rtol: float = 1e-9) -> None:
    for name, array in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), array, rtol=rtol, err_msg=name)


def test_em_against_a_naive_one() -> None:
    x = samples(300, 4)
    x[:, 3] = np.float32(0.25)  # no spread at all: the floors
    start = hybrid._initial(x, hybrid._sorted_order(x), 3, np.random.default_rng(5))
    centre = np.median(x, axis=0)
    np.testing.assert_allclose(
        start.scales[0], np.maximum(np.abs(x - centre).mean(axis=0), 1e-3), rtol=1e-6
    )
    np.testing.assert_allclose(start.variances[2], np.maximum(x.var(axis=0), 1e-3), rtol=1e-5)
    assert all(any(np.array_equal(m, row) for row in x) for m in start.medians)
    assert np.array_equal(start.medians, start.means)
    assert np.array_equal(start.weights, np.full(3, 1 / 3))
    expected = start
    for _ in range(4):
        expected = naive_m_step(x.astype(np.float64), expected.posteriors(x))
    assert_close(fit_hybrid(x, 3, 4, seed=5), expected)
    assert expected.laplace.any()
    assert not expected.laplace.all()


def test_gaussian_switches_give_the_em_of_scikit_learn() -> None:
    x = samples(500, 3)
    order = hybrid._sorted_order(x)
    mixture = hybrid._initial(x, order, 4, np.random.default_rng(1))
    mixture = replace(mixture, laplace=np.zeros((4, 3), dtype=np.bool_))
    oracle = GaussianMixture(
        4,
        covariance_type="diag",
        tol=0,
        reg_covar=0,
        max_iter=10,
        weights_init=mixture.weights,
        means_init=mixture.means,
        precisions_init=1 / mixture.variances,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        oracle.fit(x.astype(np.float64))
    for _ in range(10):
        mixture = hybrid._m_step(mixture, x, order, mixture.posteriors(x), mixture.laplace)
    np.testing.assert_allclose(mixture.means, oracle.means_, rtol=1e-7)
    np.testing.assert_allclose(mixture.variances, oracle.covariances_, rtol=1e-7)
    np.testing.assert_allclose(mixture.weights, oracle.weights_, rtol=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_likelihood_never_falls_while_the_switches_stay(share: float) -> None:
    x = samples(1000, 6, seed=2)
    order = hybrid._sorted_order(x)
    rng = np.random.default_rng(3)
    fixed = rng.random((5, 6)) < share
    mixture = replace(hybrid._initial(x, order, 5, rng), laplace=fixed)
    history = [mean_log_likelihood(mixture, x)]
    for _ in range(15):
        mixture = hybrid._m_step(mixture, x, order, mixture.posteriors(x), fixed)
        history.append(mean_log_likelihood(mixture, x))
    assert np.array_equal(mixture.laplace, fixed)
    assert np.diff(history).min() > -1e-9
    assert history[-1] > history[0] + 0.5


def test_a_known_mixture_is_found() -> None:
    rng = np.random.default_rng(4)
    truth = Mixture(
        weights=np.array([0.5, 0.3, 0.2]),
        medians=np.array([[-6.0, 0, 0, 4], [0, 6, 0, -4], [6, 0, -6, 0]]),
        scales=np.tile([0.5, 1.0, 0.7, 0.9], (3, 1)),
        means=np.array([[-6.0, 0, 0, 4], [0, 6, 0, -4], [6, 0, -6, 0]]),
        variances=np.tile([0.5, 1.0, 0.7, 0.9], (3, 1)),
        laplace=np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 0]], dtype=np.bool_),
    )
    chosen = rng.choice(3, 8000, p=truth.weights)
    as_laplace = rng.laplace(truth.medians[chosen], truth.scales[chosen])
    as_gauss = rng.normal(truth.means[chosen], np.sqrt(truth.variances[chosen]))
    x = np.where(truth.laplace[chosen], as_laplace, as_gauss).astype(np.float32)
    fits = [fit_hybrid(x, 3, 30, seed=seed) for seed in range(4)]  # some end in a local optimum
    found = max(fits, key=lambda fit: mean_log_likelihood(fit, x))
    match = [int(np.argmin(np.abs(found.medians - m).sum(axis=1))) for m in truth.medians]
    assert sorted(match) == [0, 1, 2]
    assert np.array_equal(found.laplace[match], truth.laplace)
    np.testing.assert_allclose(found.weights[match], truth.weights, atol=0.02)
    used = truth.laplace
    np.testing.assert_allclose(found.medians[match][used], truth.medians[used], atol=0.07)
    np.testing.assert_allclose(found.scales[match][used], truth.scales[used], rtol=0.08)
    np.testing.assert_allclose(found.means[match][~used], truth.means[~used], atol=0.07)
    np.testing.assert_allclose(found.variances[match][~used], truth.variances[~used], rtol=0.08)


def test_same_seed_same_bits_and_progress() -> None:
    x = samples(600, 5)
    steps: list[tuple[int, int, float]] = []
    first = fit_hybrid(x, 4, seed=7, progress=lambda *step: steps.append(step))
    again = fit_hybrid(x, 4, seed=7)
    for name, array in vars(first).items():
        assert array.tobytes() == getattr(again, name).tobytes()
    assert not np.array_equal(first.medians, fit_hybrid(x, 4, seed=8).medians)
    assert [(done, total) for done, total, _ in steps] == [(i, 10) for i in range(1, 11)]
    assert steps[-1][2] > steps[0][2]
    assert_close(fit_hybrid(x.astype(np.float64), 4, seed=7), first)


def test_laplacian_kind_stays_laplacian_and_one_component_has_a_closed_form() -> None:
    x = samples(401, 3)
    mixture = fit_hybrid(x, 1, 2, seed=0, kind="laplacian")
    assert mixture.laplace.all()
    assert np.array_equal(mixture.medians[0], np.median(x, axis=0))
    expected = np.abs(x - np.median(x, axis=0)).mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(mixture.scales[0], expected, rtol=1e-6)
    assert mixture.weights[0] == 1
    assert fit_hybrid(x, 5, 3, seed=0, kind="laplacian").laplace.all()


def test_a_component_without_samples_keeps_its_parameters() -> None:
    x = samples(100, 3)
    before = random_mixture(2, 3)
    posteriors = np.column_stack((np.ones(100), np.zeros(100)))
    order = hybrid._sorted_order(x)
    after = hybrid._m_step(before, x, order, posteriors, None)
    for name in ("medians", "scales", "means", "variances", "laplace"):
        assert np.array_equal(getattr(after, name)[1], getattr(before, name)[1])
    assert 0 < after.weights[1] < 1e-9
    assert np.isfinite(after.log_components(x)).all()


def test_gaussian_mixture_is_that_of_scikit_learn() -> None:
    x = samples(400, 3)
    mixture, converged = fit_gaussian(x, 4, seed=3)
    oracle = GaussianMixture(4, covariance_type="diag", random_state=3).fit(x)
    assert converged is oracle.converged_ is True
    assert not mixture.laplace.any()
    np.testing.assert_allclose(mixture.posteriors(x), oracle.predict_proba(x), atol=2e-5)


def test_gaussian_mixture_that_does_not_converge_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_steps(*args: int, **settings: object) -> GaussianMixture:
        return GaussianMixture(*args, **settings, max_iter=2, tol=0)

    monkeypatch.setattr(gaussian, "GaussianMixture", two_steps)
    assert fit_gaussian(samples(400, 3), 4, seed=3)[1] is False


def test_samples_that_cannot_be_fitted_are_refused() -> None:
    x = samples(10, 3)
    with pytest.raises(EncoderError, match="11 components cannot be fitted on 10 samples"):
        fit_hybrid(x, 11, seed=0)
    with pytest.raises(EncoderError, match="0 components"):
        fit_gaussian(x, 0, seed=0)
    with pytest.raises(EncoderError, match=r"shape \(10,\)"):
        fit_hybrid(x[:, 0], 1, seed=0)
    with pytest.raises(EncoderError, match="int64"):
        fit_hybrid(x.astype(np.int64), 1, seed=0)
    with pytest.raises(EncoderError, match="'student'"):
        fit_hybrid(x, 1, seed=0, kind="student")  # type: ignore[arg-type]
    x[6, 1] = np.nan
    with pytest.raises(EncoderError, match="sample 6 has NaN"):
        fit_hybrid(x, 2, seed=0)


def test_parameters_of_no_mixture_are_refused() -> None:
    mixture = random_mixture(2, 3)
    with pytest.raises(EncoderError, match=r"medians have shape \(1, 3\), expected \(2, 3\)"):
        replace(mixture, medians=mixture.medians[:1])
    with pytest.raises(EncoderError, match="scales have values that are not positive"):
        replace(mixture, scales=mixture.scales * 0)
    with pytest.raises(EncoderError, match="means have NaN"):
        replace(mixture, means=mixture.means * np.nan)
    with pytest.raises(EncoderError, match="laplace are int8, expected bool"):
        replace(mixture, laplace=mixture.laplace.astype(np.int8))
