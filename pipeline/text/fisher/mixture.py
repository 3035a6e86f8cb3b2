"""Densities of mixtures of axis-aligned Gaussians, of Laplacians, and of both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.text import EncoderError

MixtureKind = Literal["gmm", "hglmm", "lmm"]
"""Gaussian, hybrid Gaussian-Laplacian, or Laplacian."""

_Floats = npt.NDArray[np.floating]
_Doubles = npt.NDArray[np.float64]

_ROWS = 256  # float64 rows per block, to stay in the cache


@dataclass(frozen=True, eq=False)
class Mixture:
    """K components over D dimensions, each of which is Laplacian or Gaussian (Klein et al. 2015).

    With `laplace` all false it is a Gaussian mixture with diagonal covariance, with `laplace` all
    true a Laplacian mixture. Unused parameters are kept.
    """

    weights: _Doubles  # (K,), positive, sum 1: the priors pi
    medians: _Doubles  # (K, D): m of exp(-|x - m| / s) / (2 s)
    scales: _Doubles  # (K, D): s > 0
    means: _Doubles  # (K, D): mu of the Gaussian
    variances: _Doubles  # (K, D), positive
    laplace: npt.NDArray[np.bool_]  # (K, D): whether a dimension is Laplacian, not Gaussian

    def __post_init__(self) -> None:
        shape = (len(self.weights), self.dim)
        for name, array in vars(self).items():
            expected = shape[:1] if name == "weights" else shape
            kind = np.bool_ if name == "laplace" else np.float64
            if array.shape != expected:
                raise _invalid(name, f"have shape {array.shape}, expected {expected}")
            if array.dtype != kind:
                raise _invalid(name, f"are {array.dtype}, expected {np.dtype(kind)}")
            if not np.isfinite(array).all():
                raise _invalid(name, "have NaN or infinite values")
        for name in ("weights", "scales", "variances"):
            if not (getattr(self, name) > 0).all():
                raise _invalid(name, "have values that are not positive")

    @property
    def components(self) -> int:
        return len(self.weights)

    @property
    def dim(self) -> int:
        return int(self.means.shape[-1])

    def log_components(self, x: _Floats) -> _Doubles:
        """Return (n, K) float64, log of pi_k p_k(x), for x (n, D); computed in float64."""
        gauss = ~self.laplace
        square = np.where(gauss, -0.5 / self.variances, 0)
        linear = np.where(gauss, self.means / self.variances, 0)
        gauss_part = -0.5 * (np.log(2 * np.pi * self.variances) + self.means**2 / self.variances)
        constant = np.where(gauss, gauss_part, -np.log(2 * self.scales)).sum(axis=1)
        constant += np.log(self.weights)
        rates = np.where(gauss, 0, 1 / self.scales)
        # The Gaussian part is a quadratic polynomial of x: two products for all components. The
        # absolute values of the Laplacian part need one pass per component.
        logs = np.empty((len(x), self.components))
        for rows, block, buffer in blocks_of(x):
            logs[rows] = block**2 @ square.T + block @ linear.T + constant
            for k in np.flatnonzero(self.laplace.any(axis=1)):
                logs[rows, k] -= distances_to(block, self.medians[k], buffer) @ rates[k]
        return logs

    def posteriors(self, x: _Floats) -> _Doubles:
        """Return (n, K) float64, the posteriors of the components given x (n, D); rows sum to 1."""
        posteriors = self.log_components(x)
        normalise(posteriors)
        return posteriors


def _invalid(name: str, problem: str) -> EncoderError:
    return EncoderError(f"the mixture's {name} {problem}; fit it again")


def check_samples(x: _Floats, components: int) -> None:
    """Check that `components` can be fitted on samples (n, D) float32 or float64."""
    if x.ndim != 2 or x.dtype not in (np.float32, np.float64) or not x.shape[1]:
        raise EncoderError(
            f"the samples are {x.dtype} of shape {x.shape}, expected float32 or float64 of shape "
            "(samples, dimensions)"
        )
    if not 1 <= components <= len(x):
        raise EncoderError(
            f"{components} components cannot be fitted on {len(x)} samples: at least 1 and at "
            "most one per sample; request fewer or add samples"
        )
    for rows, block, _ in blocks_of(x):
        if not np.isfinite(block).all():
            bad = rows.start + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise EncoderError(f"sample {bad} has NaN or infinite values; leave it out")


def blocks_of(x: _Floats) -> Iterator[tuple[slice, _Doubles, _Doubles]]:
    """Yield slices of rows, those rows of x in float64, and a scratch array of the same shape."""
    room = np.empty((min(_ROWS, len(x)), x.shape[1]))
    for start in range(0, len(x), _ROWS):
        block = x[start : start + _ROWS].astype(np.float64)
        yield slice(start, start + len(block)), block, room[: len(block)]


def distances_to(block: _Doubles, centre: _Doubles, out: _Doubles) -> _Doubles:
    """Return |block - centre|, (rows, D), in `out`."""
    np.subtract(block, centre, out=out)
    return np.abs(out, out=out)


def normalise(logs: _Doubles) -> _Doubles:
    """Normalise rows of `logs` (n, K) to posteriors in place; return the log of their sums (n,)."""
    # Relative to the largest one, so that exp neither overflows nor vanishes altogether.
    highest = logs.max(axis=1, keepdims=True)
    logs -= highest
    np.exp(logs, out=logs)
    sums = logs.sum(axis=1, keepdims=True)
    logs /= sums
    return (highest + np.log(sums))[:, 0]
