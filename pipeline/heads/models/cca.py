"""Normalised canonical correlation analysis, in closed form.

The CCA of Wang et al. 2016, table 1, after Gong et al. 2014 and Klein et al. 2015: linear maps of
either side to coordinates of unit variance that correlate as much as they can, each coordinate
scaled by its correlation, rows scaled to length 1, cosine. With both sides centred and Cx = Lx Lx',
Cy = Ly Ly' regularised, Lx^-1 Cxy Ly^-T = U R V' gives Wx = Lx^-T U and Wy = Ly^-T V. Every caption
makes a pair with its image, so an image counts as often as it has captions.

The defaults are Klein et al.'s; `pipeline.heads.presets` has Gong et al.'s, too. Deviations: each
side has a ridge of its own, theirs is one for both, which suits neither where the spectra of the
two sides differ; coordinates that do not correlate are left out, since any basis of theirs would
do.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from scipy.linalg import eigvalsh, solve_triangular
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.heads.base import (
    FitOptions,
    HeadKind,
    History,
    choice,
    embed_rows,
    require_fitted,
    retrieval_figures,
    setting,
)
from pipeline.heads.data.feature_spec import HeadInputs, require_vectors
from pipeline.heads.data.pairs import Doubles, Features, Pairs, Rows, first_captions_of
from pipeline.heads.layers.scaling import UnitRows, signed_roots

CANDIDATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Ridges among which the validation split chooses."""

_FLOOR = 1e-8  # what Klein et al. add to a relative ridge
_CPU = torch.device("cpu")
_IMAGES = 256  # whose float64 copies, and those of their captions, are in memory together
_NOTHING = 1e-9  # a correlation that is rounding error


@dataclass(frozen=True)
class CcaSettings:
    """Settings after Klein et al. 2015.

    dim : upper bound of the coordinates kept, those of the largest correlations; 0 keeps all.
    regularisation : what is added to the diagonal of a covariance: "relative", the ridge times
        its largest eigenvalue, and 1e-8 (Klein et al.), or "absolute", the ridge (Gong et al.).
    image_ridge, caption_ridge : the ridges; 0 has the rsum of the validation split choose among
        `CANDIDATES`: 25 solutions where it chooses both.
    scaling : coordinates are scaled by a power of the "correlation" rho, or of the "eigenvalue"
        1 + rho of the generalised problem of both sides (Gong et al.).
    power : of the scaling; 0 scales nothing.
    image_scaling : features as "given", or "rooted": the signed square root of each number, then
        unit length; no CCA paper's, see `pipeline.heads.layers.scaling.signed_roots`.
    """

    dim: int = setting(0)
    regularisation: str = choice("relative", "absolute")
    image_ridge: float = setting(0.0)
    caption_ridge: float = setting(0.0)
    scaling: str = choice("correlation", "eigenvalue")
    power: float = setting(1.0)
    image_scaling: str = choice("given", "rooted")


class Projection(nn.Module):
    """One side's map: (x - mean) weight, scaled to length 1."""

    mean: Tensor
    weight: Tensor

    def __init__(self, mean: Tensor, weight: Tensor) -> None:
        """Take (d,) and (d, dim) float64."""
        super().__init__()
        self.register_buffer("mean", mean)
        # As safetensors wants it; solvers give Fortran order.
        self.register_buffer("weight", weight.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) float32 unit vectors of (n, d), zeros where nothing is left of a row."""
        return F.normalize((x.double() - self.mean) @ self.weight, dim=1).float()


class CcaHead:
    """Canonical coordinates of images and captions."""

    similarity = "cosine"

    def __init__(self, settings: CcaSettings, inputs: HeadInputs) -> None:
        """Take the shapes and recipes of both sides.

        Raises
        ------
        HeadError
            A side has no vectors.
        """
        self.settings = settings
        require_vectors("cca", inputs.images)
        require_vectors("cca", inputs.captions)
        self._net: nn.ModuleDict | None = None
        self._correlations = torch.empty(0, dtype=torch.float64)

    def fit(self, train: Pairs, validation: Pairs, options: FitOptions) -> History:
        """Solve for each ridge in question, and keep the solution of the highest rsum.

        Nothing is random. The history has an entry for each pair of ridges: `epoch` from 1,
        `image_ridge`, `caption_ridge`, `correlation` (the first), the figures of the validation
        split, and `best` (1 for the one that is kept; the first of equals wins).

        Raises
        ------
        HeadError
            Fewer than two training images, covariances that are singular in spite of their
            ridges, or sides without correlation.
        """
        if len(train.image_ids) < 2:
            raise HeadError(
                f"{len(train.image_ids)} training image found; at least 2 are needed for a "
                "correlation"
            )
        s = self.settings
        candidates = ([r] if r else CANDIDATES for r in (s.image_ridge, s.caption_ridge))
        ridges = list(product(*candidates))
        options.progress(0, len(ridges), 0)
        train = replace(train, images=self._prepared(train.images))
        validation = replace(validation, images=self._prepared(validation.images))
        moments = moments_of(train)
        image_unit = caption_unit = 1.0
        floor = 0.0
        if s.regularisation == "relative":
            image_unit = _largest_eigenvalue(moments.images)
            caption_unit = _largest_eigenvalue(moments.captions)
            floor = _FLOOR
        history: History = []
        best = -1.0
        for image_ridge, caption_ridge in ridges:
            to_image, to_caption, correlations = canonical_directions(
                moments,
                image_ridge * image_unit + floor,
                caption_ridge * caption_unit + floor,
                s.dim,
            )
            rho = torch.from_numpy(correlations)
            scale = (rho if s.scaling == "correlation" else 1.0 + rho) ** s.power
            net = _network(
                (torch.from_numpy(moments.image_mean), torch.from_numpy(to_image) * scale),
                (torch.from_numpy(moments.caption_mean), torch.from_numpy(to_caption) * scale),
            )
            figures = retrieval_figures(net, self.similarity, validation, _CPU)
            history.append(
                {
                    "epoch": len(history) + 1,
                    "image_ridge": image_ridge,
                    "caption_ridge": caption_ridge,
                    "correlation": float(correlations[0]),
                    **figures,
                }
            )
            if figures["rsum"] > best:
                best = figures["rsum"]
                self._net, self._correlations = net, rho
            options.progress(len(history), len(ridges), 0)
        kept = [entry["rsum"] for entry in history].index(best)
        return [entry | {"best": float(at == kept)} for at, entry in enumerate(history)]

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32 unit vectors; zeros for an image at the mean."""
        return embed_rows(require_fitted(self._net)["image"], self._prepared(rows), _CPU)

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32 unit vectors; zeros for a caption at the mean."""
        return embed_rows(require_fitted(self._net)["caption"], rows, _CPU)

    def tensors(self) -> dict[str, Tensor]:
        """Return `mean` and scaled `weight` of both sides and the correlations, float64."""
        return {**require_fitted(self._net).state_dict(), "correlations": self._correlations}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._net = _network(
            (tensors["image.mean"], tensors["image.weight"]),
            (tensors["caption.mean"], tensors["caption.weight"]),
        )
        self._correlations = tensors["correlations"]

    def _prepared(self, images: Rows) -> Rows:
        return UnitRows(images, signed_roots) if self.settings.image_scaling == "rooted" else images


def _network(image: tuple[Tensor, Tensor], caption: tuple[Tensor, Tensor]) -> nn.ModuleDict:
    modules = {"image": Projection(*image), "caption": Projection(*caption)}
    return nn.ModuleDict(modules).eval()


def _largest_eigenvalue(covariance: Doubles) -> float:
    last = len(covariance) - 1
    return float(eigvalsh(covariance, subset_by_index=(last, last))[0])


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and covariances of pairs; the denominator is one less than their number.

    Attributes
    ----------
    image_mean, caption_mean : (d,) and (e,).
    images, captions, cross : (d, d), (e, e) and (d, e).
    """

    image_mean: Doubles
    caption_mean: Doubles
    images: Doubles
    captions: Doubles
    cross: Doubles


def moments_of(pairs: Pairs) -> Moments:
    """Return means and covariances of pairs, summed in float64 over blocks of images, one pass."""
    first = first_captions_of(pairs.image_of_caption)
    (d,), (e,), n = pairs.images.row_shape, pairs.captions.row_shape, len(pairs.image_of_caption)
    image_sum, caption_sum = np.zeros(d), np.zeros(e)
    images, captions, cross = np.zeros((d, d)), np.zeros((e, e)), np.zeros((d, e))
    for start in range(0, len(pairs.image_ids), _IMAGES):
        stop = min(start + _IMAGES, len(pairs.image_ids))
        x = pairs.images.take(np.arange(start, stop)).astype(np.float64)
        y = pairs.captions.take(np.arange(first[start], first[stop])).astype(np.float64)
        if start == 0:  # values near zero, so that no digits cancel in the end
            image_shift, caption_shift = x.mean(axis=0), y.mean(axis=0)
        x -= image_shift
        y -= caption_shift
        times = np.diff(first[start : stop + 1]).astype(np.float64)
        of_pairs = x * np.sqrt(times)[:, None]
        image_sum += times @ x
        caption_sum += y.sum(axis=0)
        images += of_pairs.T @ of_pairs
        captions += y.T @ y
        cross += x.T @ np.add.reduceat(y, first[start:stop] - first[start])
    return Moments(
        image_shift + image_sum / n,
        caption_shift + caption_sum / n,
        (images - np.outer(image_sum, image_sum / n)) / (n - 1),
        (captions - np.outer(caption_sum, caption_sum / n)) / (n - 1),
        (cross - np.outer(image_sum, caption_sum / n)) / (n - 1),
    )


def canonical_directions(
    moments: Moments, image_ridge: float, caption_ridge: float, dim: int = 0
) -> tuple[Doubles, Doubles, Doubles]:
    """Return canonical directions and correlations, the largest first.

    Parameters
    ----------
    moments : of the training pairs.
    image_ridge, caption_ridge : added to the diagonals of the covariances.
    dim : upper bound of their number; 0 for all.

    Returns
    -------
    (d, k), (e, k) float64
        Directions in columns: the regularised variance along each is 1. The number of largest
        absolute value of an image direction is positive.
    (k,) float64
        Correlations (with the regularised variances), above 1e-9.

    Raises
    ------
    HeadError
        A covariance is singular to rounding, or there is no correlation.
    """
    try:
        lower_x = np.linalg.cholesky(moments.images + image_ridge * np.eye(len(moments.images)))
        lower_y = np.linalg.cholesky(
            moments.captions + caption_ridge * np.eye(len(moments.captions))
        )
        half = solve_triangular(lower_x, moments.cross, lower=True)
        whitened = solve_triangular(lower_y, half.T, lower=True).T
        u, correlations, vt = np.linalg.svd(whitened, full_matrices=False)
        if correlations[0] > 1.0 + 1e-6:
            raise np.linalg.LinAlgError(f"the first correlation is {correlations[0]:g}")
    except np.linalg.LinAlgError as error:
        raise HeadError(
            f"the covariance of a side is singular to rounding ({error}), with {image_ridge:g} "
            f"added to the images' and {caption_ridge:g} to the captions'; raise the ridges"
        ) from error
    kept = int(np.count_nonzero(correlations > _NOTHING))
    if kept == 0:
        raise HeadError(
            "images and captions of the training split do not correlate at all: the features of "
            "a side never vary, or are tiny beside its ridge; check them, or scale them up"
        )
    kept = min(kept, dim or kept)
    to_image = solve_triangular(lower_x, u[:, :kept], lower=True, trans="T")
    to_caption = solve_triangular(lower_y, vt[:kept].T, lower=True, trans="T")
    largest = np.abs(to_image).argmax(axis=0)
    sign = np.where(to_image[largest, np.arange(kept)] < 0, -1.0, 1.0)
    return to_image * sign, to_caption * sign, correlations[:kept]


HEAD = HeadKind(CcaSettings, CcaHead)
