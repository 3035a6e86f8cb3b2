"""Fitting a Gaussian mixture of diagonal covariance, by scikit-learn."""

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pipeline.text.mixtures import Mixture, check_samples


def fit_gaussian(
    x: npt.NDArray[np.floating], components: int = 30, *, seed: int
) -> tuple[Mixture, bool]:
    """Fit a Gaussian mixture of diagonal covariance with scikit-learn's EM.

    `GaussianMixture` with its defaults: started by k-means, at most 100 iterations, ended once
    the mean log-likelihood gains less than 1e-3, 1e-6 added to every variance.

    Parameters
    ----------
    x, components, seed : as for `pipeline.text.hybrid.fit_hybrid`.

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
    check_samples(x, components)
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
