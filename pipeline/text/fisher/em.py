"""EM for mixtures: our own `fit_hybrid` with Laplacians, scikit-learn's `fit_gaussian` without."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pipeline.text import EncoderError
from pipeline.text.fisher.mixture import Mixture, blocks_of, check_samples, distances_to, normalise

_Floats = npt.NDArray[np.floating]
_Doubles = npt.NDArray[np.float64]

# Lower bound of Laplace scales and Gaussian variances. Samples should be scaled accordingly: those
# of Klein et al. 2015 are unit vectors times 10.
_FLOOR = 1e-3
_EMPTY = 1e-10  # a component with a smaller share of the samples is not updated
_BUCKET = 512  # samples per bucket in the first step of a weighted median


def fit_hybrid(
    x: _Floats,
    components: int = 30,
    iterations: int = 10,
    *,
    seed: int,
    kind: Literal["hybrid", "laplacian"] = "hybrid",
    progress: Callable[[int, int, float], None] = lambda done, total, log_likelihood: None,
) -> Mixture:
    """Fit a hybrid Gaussian-Laplacian or a Laplacian mixture on x (n, D) by `iterations` of EM.

    Klein et al. 2015 and their published program: medians and means start at K of the samples,
    scales and variances at those of all samples, switches at random (for "laplacian" all Laplace,
    for good), priors at 1/K. Each M step updates medians (the first sample in sorted order whose
    cumulative weight reaches half), scales, means, variances (all four whatever the switches) and
    priors, and then sets each switch to Laplace if that is likelier than Gauss under the
    posteriors. Deviation: a component with less than 1e-10 of the samples keeps its parameters,
    where the formulas divide by zero.

    Memory in addition to `x`: 4 n D + 16 n K bytes, for the sorting order of every dimension and
    the posteriors; 0.5 GB for 300,000 samples of 300 dimensions and K = 30.
    """
    check_samples(x, components)
    if kind not in ("hybrid", "laplacian"):
        raise EncoderError(f"the kind of mixture is {kind!r}, expected 'hybrid' or 'laplacian'")
    # Every M step needs medians under new weights, but the order of the samples stays.
    order = _sorted_order(x)
    mixture = _initial(x, order, components, np.random.default_rng(seed))
    fixed = np.ones_like(mixture.laplace) if kind == "laplacian" else None
    if fixed is not None:
        mixture = replace(mixture, laplace=fixed)
    for done in range(1, iterations + 1):
        posteriors = mixture.log_components(x)
        log_likelihood = float(normalise(posteriors).mean())
        mixture = _m_step(mixture, x, order, posteriors, fixed)
        progress(done, iterations, log_likelihood)
    return mixture


def fit_gaussian(x: _Floats, components: int = 30, *, seed: int) -> tuple[Mixture, bool]:
    """Fit a Gaussian mixture with diagonal covariance; also return whether EM converged.

    scikit-learn's EM with its defaults: k-means initialisation, at most 100 iterations, convergence
    when the mean log-likelihood increases by less than 1e-3, 1e-6 added to every variance.
    """
    check_samples(x, components)
    model = GaussianMixture(components, covariance_type="diag", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the second value reports it
        model.fit(x)
    means = model.means_.astype(np.float64)
    variances = model.covariances_.astype(np.float64)
    # All switches are Gauss. Medians and scales are those of the Gaussians: the mean, and the mean
    # absolute deviation sqrt(2 variance / pi).
    mixture = Mixture(
        weights=model.weights_.astype(np.float64),
        medians=means.copy(),
        scales=np.sqrt(2 * variances / np.pi),
        means=means,
        variances=variances,
        laplace=np.zeros(means.shape, dtype=np.bool_),
    )
    return mixture, bool(model.converged_)


def _initial(
    x: _Floats, order: npt.NDArray[np.int32], components: int, rng: np.random.Generator
) -> Mixture:
    chosen = x[rng.choice(len(x), components, replace=False)].astype(np.float64)
    # Any number between the two middle samples has the same mean distance.
    median = x[order[:, (len(x) - 1) // 2], np.arange(x.shape[1])].astype(np.float64)
    scale = np.zeros(x.shape[1])
    for _, block, buffer in blocks_of(x):
        scale += distances_to(block, median, buffer).sum(axis=0)
    scale = np.maximum(scale / len(x), _FLOOR)
    variance = np.maximum(x.var(axis=0, dtype=np.float64), _FLOOR)
    return Mixture(
        weights=np.full(components, 1 / components),
        medians=chosen,
        scales=np.tile(scale, (components, 1)),
        means=chosen.copy(),
        variances=np.tile(variance, (components, 1)),
        laplace=rng.integers(0, 2, chosen.shape).astype(np.bool_),
    )


def _m_step(
    mixture: Mixture,
    x: _Floats,
    order: npt.NDArray[np.int32],
    posteriors: _Doubles,
    fixed: npt.NDArray[np.bool_] | None,
) -> Mixture:
    """Return the mixture fitted on posteriors (n, K), with `fixed` or the likelier switches."""
    mass = posteriors.sum(axis=0)
    full = mass > _EMPTY * len(x)
    medians = _weighted_medians(x, order, posteriors)
    distances, first, second = np.zeros((3, *medians.shape))
    for rows, block, buffer in blocks_of(x):
        weights = posteriors[rows].T
        first += weights @ block
        second += weights @ block**2
        for k in range(mixture.components):
            distances[k] += weights[k] @ distances_to(block, medians[k], buffer)
    # Empty components: no division by zero; their results are replaced below.
    n = np.where(full, mass, 1)[:, None]
    scales = np.maximum(distances / n, _FLOOR)
    means = first / n
    scatter = np.maximum(second - n * means**2, 0)  # rounding can make it negative
    variances = np.maximum(scatter / n, _FLOOR)
    if fixed is None:
        # Expected log-likelihood of each dimension under the posteriors, as either kind.
        as_laplace = -n * np.log(2 * scales) - distances / scales
        as_gauss = -0.5 * (n * np.log(2 * np.pi * variances) + scatter / variances)
        laplace = np.where(full[:, None], as_laplace > as_gauss, mixture.laplace)
    else:
        laplace = fixed
    shares = np.maximum(mass / len(x), _EMPTY)
    return Mixture(
        weights=shares / shares.sum(),
        medians=np.where(full[:, None], medians, mixture.medians),
        scales=np.where(full[:, None], scales, mixture.scales),
        means=np.where(full[:, None], means, mixture.means),
        variances=np.where(full[:, None], variances, mixture.variances),
        laplace=laplace,
    )


def _sorted_order(x: _Floats) -> npt.NDArray[np.int32]:
    """Return (D, n) int32, the stable sorting order of each dimension."""
    order = np.empty(x.shape[::-1], dtype=np.int32)
    for d in range(x.shape[1]):
        order[d] = np.argsort(x[:, d], kind="stable")
    return order


def _weighted_medians(x: _Floats, order: npt.NDArray[np.int32], weights: _Doubles) -> _Doubles:
    """Return (K, D): the weighted medians of x (n, D) under each column of weights (n, K)."""
    # Cumulative sums over all samples for every component would dominate EM's run time, so buckets
    # of sorted samples are summed first, and single samples only in the bucket where half is
    # reached.
    n, components = weights.shape
    medians = np.empty((components, x.shape[1]))
    starts = np.arange(0, n, _BUCKET, dtype=np.int32)
    ends = np.append(starts, np.int32(n))
    ones = np.ones(n)
    column = np.arange(components)[:, None]
    for d, sorted_rows in enumerate(order):
        # A sparse matrix of ones gathers and sums the weights without a sorted copy.
        buckets = sparse.csr_array((ones, sorted_rows, ends), shape=(len(starts), n))
        until = np.cumsum(buckets @ weights, axis=0)
        half = until[-1] / 2
        bucket = np.minimum((until < half).sum(axis=0), len(starts) - 1)
        before = np.where(bucket > 0, until[bucket - 1, column[:, 0]], 0)
        position = starts[bucket][:, None] + np.arange(_BUCKET)
        inside = weights[sorted_rows[np.minimum(position, n - 1)], column]
        reached = before[:, None] + np.cumsum(inside, axis=1)
        # By rounding, half may be just beyond the bucket: then its last sample is used.
        step = np.minimum((reached < half[:, None]).sum(axis=1), _BUCKET - 1)
        position_of_half = np.minimum(starts[bucket] + step, n - 1)
        medians[:, d] = x[sorted_rows[position_of_half], d]
    return medians
