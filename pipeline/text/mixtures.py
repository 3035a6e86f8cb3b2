"""Mixtures of axis-aligned Gaussians, of Laplacians, and of both at once, fitted by EM."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pipeline.errors import PipelineError

_Floats = npt.NDArray[np.floating]
_Doubles = npt.NDArray[np.float64]

_FLOOR = 1e-3  # of every Laplace scale and of every Gauss variance
_EMPTY = 1e-10  # a smaller share of the samples is no component: nothing can be fitted to it
_ROWS = 256  # rows in float64 at once, so that the work on them stays in the cache
_BUCKET = 512  # samples summed together on the first of two steps to a weighted median


class MixtureError(PipelineError):
    """A mixture cannot be fitted to these samples, or its parameters are not those of one."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """K components over D dimensions; in each, every dimension is Laplacian or Gaussian.

    The hybrid Gaussian-Laplacian mixture of Klein et al. 2015; with `laplace` all false it is
    a Gaussian mixture of diagonal covariance, with `laplace` all true a Laplacian mixture. The
    parameters that a switch leaves unused are kept.

    Attributes
    ----------
    weights : (K,) float64, positive, sum 1: the priors pi.
    medians, scales : (K, D) float64: m and s > 0 of exp(-|x - m| / s) / (2 s).
    means, variances : (K, D) float64: mu and variance > 0 of the Gaussian.
    laplace : (K, D) bool: which of the two stands for the dimension.

    Raises
    ------
    MixtureError
        Shapes or types that do not agree, numbers that are not finite or not positive.
    """

    weights: _Doubles
    medians: _Doubles
    scales: _Doubles
    means: _Doubles
    variances: _Doubles
    laplace: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        shape = (len(self.weights), self.dim)
        for name, array in vars(self).items():
            expected = shape[:1] if name == "weights" else shape
            if array.shape != expected:
                raise MixtureError(
                    f"the mixture's {name} have shape {array.shape}, expected {expected}; fit it "
                    "again"
                )
            kind = np.bool_ if name == "laplace" else np.float64
            if array.dtype != kind:
                raise MixtureError(
                    f"the mixture's {name} are {array.dtype}, expected {np.dtype(kind)}; fit it "
                    "again"
                )
            if not np.isfinite(array).all():
                raise MixtureError(
                    f"the mixture's {name} have NaN or infinite numbers; fit it again"
                )
        for name in ("weights", "scales", "variances"):
            if not (getattr(self, name) > 0).all():
                raise MixtureError(
                    f"the mixture's {name} have numbers that are not positive; fit it again"
                )

    @property
    def components(self) -> int:
        """How many components there are, K."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """How many dimensions there are, D."""
        return int(self.means.shape[-1])

    def log_components(self, x: _Floats) -> _Doubles:
        """Return (n, K) float64, the log of pi_k p_k(x), for x (n, D).

        Computed in float64 whatever the type of `x`, 256 rows at a time.
        """
        gauss = ~self.laplace
        square = np.where(gauss, -0.5 / self.variances, 0)
        linear = np.where(gauss, self.means / self.variances, 0)
        gauss_part = -0.5 * (np.log(2 * np.pi * self.variances) + self.means**2 / self.variances)
        constant = np.where(gauss, gauss_part, -np.log(2 * self.scales)).sum(axis=1)
        constant += np.log(self.weights)
        rates = np.where(gauss, 0, 1 / self.scales)
        logs = np.empty((len(x), self.components))
        for rows, block, buffer in _blocks(x):
            logs[rows] = block**2 @ square.T + block @ linear.T + constant
            for k in np.flatnonzero(self.laplace.any(axis=1)):
                logs[rows, k] -= _distances(block, self.medians[k], buffer) @ rates[k]
        return logs

    def posteriors(self, x: _Floats) -> _Doubles:
        """Return (n, K) float64, rows of sum 1: how likely x (n, D) came from each component."""
        posteriors = self.log_components(x)
        _normalise(posteriors)
        return posteriors


def fit_hybrid(
    x: _Floats,
    components: int = 30,
    iterations: int = 10,
    *,
    seed: int,
    kind: Literal["hybrid", "laplacian"] = "hybrid",
    progress: Callable[[int, int, float], None] = lambda done, total, log_likelihood: None,
) -> Mixture:
    """Fit a hybrid Gaussian-Laplacian or a Laplacian mixture by exactly `iterations` of EM.

    Klein et al. 2015 and their published program: medians and means start at K of the samples,
    scales and variances at those of all samples, switches at random, priors at 1/K. Each M step
    sets medians (the first sample in sorted order whose cumulative weight reaches half), scales,
    means, variances (all four whatever the switches), priors, and then each switch to Laplace
    where that is likelier than Gauss under the posteriors. Scales and variances are at least
    1e-3: samples are expected to be scaled so that this is small (there: unit vectors times 10).
    Deviation: a component with less than 1e-10 of the samples keeps its parameters, where the
    formulas would divide by zero.

    Parameters
    ----------
    x : (n, D) float32 or float64, finite. Sums are taken in float64.
    components : K, at most n.
    iterations : how often to do an E and an M step.
    seed : of the initial samples and switches.
    kind : "hybrid", or "laplacian" where every dimension stays Laplacian.
    progress : called with iterations done, iterations in all, and the mean log-likelihood of a
        sample before the last one done.

    Returns
    -------
    Mixture

    Raises
    ------
    MixtureError
        `x` is not such an array, or has fewer samples than components.

    Notes
    -----
    Memory beside `x`: 4 n D + 16 n K bytes (the order of every dimension; the posteriors), which
    is 0.5 GB for 300,000 samples of 300 dimensions and K = 30.
    """
    _check_samples(x, components)
    if kind not in ("hybrid", "laplacian"):
        raise MixtureError(f"the kind of mixture is {kind!r}, expected 'hybrid' or 'laplacian'")
    order = _sorted_order(x)
    mixture = _initial(x, order, components, np.random.default_rng(seed))
    fixed = np.ones_like(mixture.laplace) if kind == "laplacian" else None
    if fixed is not None:
        mixture = replace(mixture, laplace=fixed)
    for done in range(1, iterations + 1):
        posteriors = mixture.log_components(x)
        log_likelihood = float(_normalise(posteriors).mean())
        mixture = _m_step(mixture, x, order, posteriors, fixed)
        progress(done, iterations, log_likelihood)
    return mixture


def fit_gaussian(x: _Floats, components: int = 30, *, seed: int) -> tuple[Mixture, bool]:
    """Fit a Gaussian mixture of diagonal covariance with scikit-learn's EM.

    `GaussianMixture` with its defaults: started by k-means, at most 100 iterations, ended once
    the mean log-likelihood gains less than 1e-3, 1e-6 added to every variance.

    Parameters
    ----------
    x, components, seed : as for `fit_hybrid`.

    Returns
    -------
    Mixture
        All switches Gauss; medians are the means, scales the mean absolute deviations of the
        Gaussians.
    bool
        Whether EM converged.

    Raises
    ------
    MixtureError
        As `fit_hybrid`.
    """
    _check_samples(x, components)
    model = GaussianMixture(components, covariance_type="diag", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told by the second value instead
        model.fit(x)
    means = model.means_.astype(np.float64)
    variances = model.covariances_.astype(np.float64)
    mixture = Mixture(
        weights=model.weights_.astype(np.float64),
        medians=means.copy(),
        scales=np.sqrt(2 * variances / np.pi),
        means=means,
        variances=variances,
        laplace=np.zeros(means.shape, dtype=np.bool_),
    )
    return mixture, bool(model.converged_)


def _check_samples(x: _Floats, components: int) -> None:
    if x.ndim != 2 or x.dtype not in (np.float32, np.float64) or not x.shape[1]:
        raise MixtureError(
            f"the samples are {x.dtype} of shape {x.shape}, expected float32 or float64 of shape "
            "(samples, dimensions)"
        )
    if not 1 <= components <= len(x):
        raise MixtureError(
            f"{components} components cannot be fitted to {len(x)} samples: at least 1 and at "
            "most one a sample; ask for fewer or give more samples"
        )
    for rows, block, _ in _blocks(x):
        if not np.isfinite(block).all():
            bad = rows.start + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise MixtureError(f"sample {bad} has NaN or infinite numbers; leave it out")


def _initial(
    x: _Floats, order: npt.NDArray[np.int32], components: int, rng: np.random.Generator
) -> Mixture:
    chosen = x[rng.choice(len(x), components, replace=False)].astype(np.float64)
    # Every number between the two middle samples has the same mean distance, so either will do.
    median = x[order[:, (len(x) - 1) // 2], np.arange(x.shape[1])].astype(np.float64)
    scale = np.zeros(x.shape[1])
    for _, block, buffer in _blocks(x):
        scale += _distances(block, median, buffer).sum(axis=0)
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
    """Return the mixture fitted to posteriors (n, K), with `fixed` switches or the likelier."""
    mass = posteriors.sum(axis=0)
    full = mass > _EMPTY * len(x)
    medians = _weighted_medians(x, order, posteriors)
    distances, first, second = np.zeros((3, *medians.shape))
    for rows, block, buffer in _blocks(x):
        weights = posteriors[rows].T
        first += weights @ block
        second += weights @ block**2
        for k in range(mixture.components):
            distances[k] += weights[k] @ _distances(block, medians[k], buffer)
    n = np.where(full, mass, 1)[:, None]
    scales = np.maximum(distances / n, _FLOOR)
    means = first / n
    scatter = np.maximum(second - n * means**2, 0)
    variances = np.maximum(scatter / n, _FLOOR)
    if fixed is None:
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
    """Return (D, n) int32, the order that sorts each dimension; ties as they stand."""
    order = np.empty(x.shape[::-1], dtype=np.int32)
    for d in range(x.shape[1]):
        order[d] = np.argsort(x[:, d], kind="stable")
    return order


def _weighted_medians(x: _Floats, order: npt.NDArray[np.int32], weights: _Doubles) -> _Doubles:
    """Return (K, D): per dimension of x (n, D), the median under each column of weights (n, K).

    That is the first sample in sorted order whose cumulative weight is at least half of all. A
    cumulative sum over all samples for every component would be most of EM's time: so sums of
    buckets of sorted samples first, and single samples only in the bucket where half is reached.
    """
    n, components = weights.shape
    medians = np.empty((components, x.shape[1]))
    starts = np.arange(0, n, _BUCKET, dtype=np.int32)
    ends = np.append(starts, np.int32(n))
    ones = np.ones(n)
    column = np.arange(components)[:, None]
    for d, sorted_rows in enumerate(order):
        # A sparse matrix of ones gathers and sums the weights without a sorted copy of them.
        buckets = sparse.csr_array((ones, sorted_rows, ends), shape=(len(starts), n))
        until = np.cumsum(buckets @ weights, axis=0)
        half = until[-1] / 2
        bucket = np.minimum((until < half).sum(axis=0), len(starts) - 1)
        before = np.where(bucket > 0, until[bucket - 1, column[:, 0]], 0)
        position = starts[bucket][:, None] + np.arange(_BUCKET)
        inside = weights[sorted_rows[np.minimum(position, n - 1)], column]
        reached = before[:, None] + np.cumsum(inside, axis=1)
        # Sums rounded in another order may leave half just beyond the bucket: then its last.
        step = np.minimum((reached < half[:, None]).sum(axis=1), _BUCKET - 1)
        found = np.minimum(starts[bucket] + step, n - 1)
        medians[:, d] = x[sorted_rows[found], d]
    return medians


def _blocks(x: _Floats) -> Iterator[tuple[slice, _Doubles, _Doubles]]:
    """Yield slices of rows, those rows of x in float64, and room of the same shape."""
    room = np.empty((min(_ROWS, len(x)), x.shape[1]))
    for start in range(0, len(x), _ROWS):
        block = x[start : start + _ROWS].astype(np.float64)
        yield slice(start, start + len(block)), block, room[: len(block)]


def _distances(block: _Doubles, centre: _Doubles, out: _Doubles) -> _Doubles:
    np.subtract(block, centre, out=out)
    return np.abs(out, out=out)


def _normalise(logs: _Doubles) -> _Doubles:
    """Turn rows of `logs` (n, K) into posteriors in place; return the log of their sums (n,)."""
    highest = logs.max(axis=1, keepdims=True)
    logs -= highest
    np.exp(logs, out=logs)
    sums = logs.sum(axis=1, keepdims=True)
    logs /= sums
    return (highest + np.log(sums))[:, 0]
