"""Normalised canonical correlation analysis (CCA) in closed form.

The defaults are Klein et al.'s; `pipeline.heads.presets` also has Gong et al.'s. Deviations: each
side has its own ridge, since the spectra of the two sides differ and a common ridge suits neither;
uncorrelated coordinates are dropped, since their basis is arbitrary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
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
from pipeline.heads.canonical_correlation import (
    CanonicalCorrelation,
    Directions,
    Moments,
    moments_of,
)
from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.feature_spec import HeadInputs, require_vectors
from pipeline.heads.inputs.pairs import HeldOut, Pairs
from pipeline.heads.layers.scaling import UnitRows, UnitVectors, signed_roots
from pipeline.store.wording import counted

CANDIDATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Ridges for the first grid search; a second one tries `FINER` times the best."""

FINER = (10**-0.5, 1.0, 10**0.5)

_FLOOR = 1e-8  # added to a relative ridge by Klein et al.
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class CcaSettings:
    """Settings after Klein et al. 2015."""

    dim: int = setting(0)  # maximum number of coordinates, by descending correlation; 0: all
    # Term added to the diagonal of a covariance: "relative", the ridge times its largest
    # eigenvalue plus 1e-8 (Klein et al.), or "absolute", the ridge (Gong et al.).
    regularisation: str = choice("relative", "absolute")
    # Ridges; 0 selects one by validation rsum, first among `CANDIDATES` and then near the best
    # (33 solutions if both are 0).
    image_ridge: float = setting(0.0)
    caption_ridge: float = setting(0.0)
    # Base of the coordinate weights: rho, or 1 + rho of the generalised eigenproblem (Gong et
    # al.).
    scaling: str = choice("correlation", "eigenvalue")
    power: float = setting(1.0)  # exponent of the coordinate weights; 0 turns scaling off
    # "given": unchanged; "unit": L2-normalised, which an absolute ridge requires; "rooted":
    # signed square roots, L2-normalised (not in a CCA paper).
    image_scaling: str = choice("given", "unit", "rooted")


class Projection(nn.Module):
    """Affine projection of one side, followed by L2 normalisation: (x - mean) weight."""

    mean: Tensor
    weight: Tensor

    def __init__(self, mean: Tensor, weight: Tensor) -> None:
        """Store the mean (d,) and the weight (d, dim), float64."""
        super().__init__()
        self.register_buffer("mean", mean)
        # safetensors requires C order; the solvers return Fortran order.
        self.register_buffer("weight", weight.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) float32 unit vectors of (n, d); a row at the mean becomes zero."""
        return F.normalize((x.double() - self.mean) @ self.weight, dim=1).float()


class CcaHead:
    """Embedding of both sides in canonical coordinates, compared by cosine.

    Both sides are projected linearly to coordinates of unit variance with maximal correlation. Each
    coordinate is scaled by its correlation, and rows are L2-normalised.

    Source: Wang, Li & Lazebnik 2016, table 1, after Gong et al. 2014 and Klein et al. 2015.
    Inputs: images (n, d) and captions (m, e), one vector per row.
    Relations: as scikit-learn's `CCA`, but in closed form, regularised, and with scaled
        coordinates. Every caption forms a pair with its image, so an image counts once per caption.
    """

    similarity = "cosine"

    def __init__(self, settings: CcaSettings, inputs: HeadInputs) -> None:
        self.settings = settings
        require_vectors("cca", inputs.images)
        require_vectors("cca", inputs.captions)
        self._net: nn.ModuleDict | None = None
        self._correlations = torch.empty(0, dtype=torch.float64)

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Solve for each candidate pair of ridges and keep the solution with the highest rsum.

        Deterministic. The history has one entry per pair of ridges: `epoch` from 1, `image_ridge`,
        `caption_ridge`, `correlation` (the largest), the validation figures, and `best` (1 for the
        selected entry; the first one on ties). `coordinates` is the number kept, if the training
        data have fewer than `dim`.
        """
        if len(train.image_ids) < 2:
            raise HeadError(
                f"{len(train.image_ids)} training image found; at least 2 are needed for a "
                "correlation: add images to the training split"
            )
        train = replace(train, images=self._prepared(train.images))
        images = self._prepared(validation.images)
        moments = moments_of(train)
        correlation = CanonicalCorrelation(moments)
        added = self._added_to(correlation)
        history: History = []
        coarse = self._ridges(CANDIDATES, CANDIDATES)
        solutions = len(coarse) + len(self._ridges(FINER, FINER)) - 1
        options.progress(0, solutions, 0)

        def try_all(ridges: list[tuple[float, float]]) -> tuple[float, float]:
            for image_ridge, caption_ridge in ridges:
                directions = correlation.solve(
                    *added(image_ridge, caption_ridge), self.settings.dim
                )
                rho = torch.from_numpy(directions.correlations)
                net = self._network(moments, directions)
                figures = retrieval_figures(net, self.similarity, validation, _CPU, images)
                history.append(
                    {
                        "epoch": len(history) + 1,
                        "image_ridge": image_ridge,
                        "caption_ridge": caption_ridge,
                        "correlation": float(rho[0]),
                        **figures,
                    }
                )
                if _best(history) == len(history) - 1:
                    self._net, self._correlations = net, rho
                options.progress(len(history), solutions, 0)
            best = history[_best(history)]
            return best["image_ridge"], best["caption_ridge"]

        image_ridge, caption_ridge = try_all(coarse)
        near = self._ridges(*([r * f for f in FINER] for r in (image_ridge, caption_ridge)))
        try_all([pair for pair in near if pair != (image_ridge, caption_ridge)])
        best = _best(history)
        available, requested = len(self._correlations), self.settings.dim
        if available < requested:
            options.log(
                f"CCA: {counted(available, 'coordinate')}, not {requested}, from "
                f"{len(train.image_ids)} images and {len(train.caption_ids)} captions"
            )
            history = [{**entry, "coordinates": available} for entry in history]
        return [entry | {"best": float(at == best)} for at, entry in enumerate(history)]

    def embed_images(self, rows: Rows) -> Features:
        """Return (images, dim) float32 unit vectors; zeros for an image at the mean."""
        return embed_rows(require_fitted(self._net)["image"], self._prepared(rows), self._device)

    def embed_captions(self, rows: Rows) -> Features:
        """Return (captions, dim) float32 unit vectors; zeros for a caption at the mean."""
        return embed_rows(require_fitted(self._net)["caption"], rows, self._device)

    def towers(self) -> nn.ModuleDict:
        """Return the projections, of images after `image_scaling`."""
        net, scaling = require_fitted(self._net), self.settings.image_scaling
        scaled = [] if scaling == "given" else [UnitVectors(rooted=scaling == "rooted")]
        image = nn.Sequential(*scaled, net["image"])
        return nn.ModuleDict({"image": image, "caption": net["caption"]})

    def tensors(self) -> dict[str, Tensor]:
        """Return `mean` and scaled `weight` of both sides and the correlations, float64."""
        return {**require_fitted(self._net).state_dict(), "correlations": self._correlations}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._net = _projections(
            (tensors["image.mean"], tensors["image.weight"]),
            (tensors["caption.mean"], tensors["caption.weight"]),
        )
        self._correlations = tensors["correlations"]

    @property
    def _device(self) -> torch.device:
        return next(require_fitted(self._net).buffers()).device

    def _prepared(self, images: Rows) -> Rows:
        if self.settings.image_scaling == "given":
            return images
        return UnitRows(images, signed_roots if self.settings.image_scaling == "rooted" else None)

    def _ridges(
        self, of_images: Sequence[float], of_captions: Sequence[float]
    ) -> list[tuple[float, float]]:
        """Return the candidate pairs of ridges; a ridge from the settings replaces them."""
        fixed = self.settings
        images = [fixed.image_ridge] if fixed.image_ridge else of_images
        captions = [fixed.caption_ridge] if fixed.caption_ridge else of_captions
        # Pairs with the same caption ridge are adjacent, since they share a factorisation.
        return [(i, c) for c in captions for i in images]

    def _added_to(self, correlation: CanonicalCorrelation) -> Callable[..., tuple[float, float]]:
        """Return the function from a pair of ridges to the terms added to the diagonals."""
        if self.settings.regularisation == "absolute":
            return lambda image_ridge, caption_ridge: (image_ridge, caption_ridge)
        of_image, of_caption = correlation.largest_eigenvalues()
        return lambda image_ridge, caption_ridge: (
            image_ridge * of_image + _FLOOR,
            caption_ridge * of_caption + _FLOOR,
        )

    def _network(self, moments: Moments, directions: Directions) -> nn.ModuleDict:
        rho = torch.from_numpy(directions.correlations)
        scale = (
            rho if self.settings.scaling == "correlation" else 1.0 + rho
        ) ** self.settings.power
        to_image, to_caption = (
            torch.from_numpy(d) * scale for d in (directions.images, directions.captions)
        )
        return _projections(
            (torch.from_numpy(moments.image_mean), to_image),
            (torch.from_numpy(moments.caption_mean), to_caption),
        )


def _best(history: History) -> int:
    scores = [entry["rsum"] for entry in history]
    return scores.index(max(scores))


def _projections(image: tuple[Tensor, Tensor], caption: tuple[Tensor, Tensor]) -> nn.ModuleDict:
    modules = {"image": Projection(*image), "caption": Projection(*caption)}
    return nn.ModuleDict(modules).eval()


HEAD = HeadKind(CcaSettings, CcaHead)
