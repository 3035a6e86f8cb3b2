"""Normalised canonical correlation analysis, in closed form.

The CCA of Wang et al. 2016, table 1, after Gong et al. 2014 and Klein et al. 2015: linear maps of
either side to coordinates of unit variance that correlate as much as they can, each coordinate
scaled by its correlation, rows scaled to length 1, cosine. `pipeline.heads.canonical_correlation`
solves for the directions. Every caption makes a pair with its image, so an image counts as often as
it has captions.

The defaults are Klein et al.'s; `pipeline.heads.presets` has Gong et al.'s, too. Deviations: each
side has a ridge of its own, theirs is one for both, which suits neither where the spectra of the
two sides differ; coordinates that do not correlate are left out, since any basis of theirs would
do.
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
from pipeline.heads.layers.scaling import UnitRows, signed_roots
from pipeline.wording import counted

CANDIDATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Ridges among which the validation split chooses, and then among `FINER` times the best."""

FINER = (10**-0.5, 1.0, 10**0.5)

_FLOOR = 1e-8  # what Klein et al. add to a relative ridge
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class CcaSettings:
    """Settings after Klein et al. 2015.

    dim : upper bound of the coordinates kept, those of the largest correlations; 0 keeps all.
    regularisation : what is added to the diagonal of a covariance: "relative", the ridge times
        its largest eigenvalue, and 1e-8 (Klein et al.), or "absolute", the ridge (Gong et al.).
    image_ridge, caption_ridge : the ridges; 0 has the rsum of the validation split choose among
        `CANDIDATES` and then between its neighbours: 33 solutions where it chooses both.
    scaling : coordinates are scaled by a power of the "correlation" rho, or of the "eigenvalue"
        1 + rho of the generalised problem of both sides (Gong et al.).
    power : of the scaling; 0 scales nothing.
    image_scaling : features as "given", each made of "unit" length, which an absolute ridge asks
        for, or "rooted": the signed square root of each number, then unit length; no CCA paper's,
        see `pipeline.heads.layers.scaling.signed_roots`.
    """

    dim: int = setting(0)
    regularisation: str = choice("relative", "absolute")
    image_ridge: float = setting(0.0)
    caption_ridge: float = setting(0.0)
    scaling: str = choice("correlation", "eigenvalue")
    power: float = setting(1.0)
    image_scaling: str = choice("given", "unit", "rooted")


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

    def fit(self, train: Pairs, validation: HeldOut, options: FitOptions) -> History:
        """Solve for each ridge in question, and keep the solution of the highest rsum.

        Nothing is random. The history has an entry for each pair of ridges: `epoch` from 1,
        `image_ridge`, `caption_ridge`, `correlation` (the first), the figures of the validation
        split, and `best` (1 for the one that is kept; the first of equals wins). Where the
        training data have fewer coordinates than `dim`, `coordinates` is the number that is kept.

        Raises
        ------
        HeadError
            Fewer than two training images, covariances that are singular in spite of their
            ridges, or sides without correlation.
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
            """Solve for each pair of ridges, keep what is best, and return its ridges."""
            for image_ridge, caption_ridge in ridges:
                found = correlation.solve(*added(image_ridge, caption_ridge), self.settings.dim)
                rho = torch.from_numpy(found.correlations)
                net = self._network(moments, found)
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
        found, requested = len(self._correlations), self.settings.dim
        if found < requested:
            options.log(
                f"CCA: {counted(found, 'coordinate')}, not {requested}, from "
                f"{len(train.image_ids)} images and {len(train.caption_ids)} captions"
            )
            history = [{**entry, "coordinates": found} for entry in history]
        return [entry | {"best": float(at == best)} for at, entry in enumerate(history)]

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
        self._net = _projections(
            (tensors["image.mean"], tensors["image.weight"]),
            (tensors["caption.mean"], tensors["caption.weight"]),
        )
        self._correlations = tensors["correlations"]

    def _prepared(self, images: Rows) -> Rows:
        if self.settings.image_scaling == "given":
            return images
        return UnitRows(images, signed_roots if self.settings.image_scaling == "rooted" else None)

    def _ridges(
        self, of_images: Sequence[float], of_captions: Sequence[float]
    ) -> list[tuple[float, float]]:
        """Return pairs of ridges, with one that is set in place of those given for its side.

        Pairs with the same caption ridge follow each other: they share most of their solution.
        """
        fixed = self.settings
        images = [fixed.image_ridge] if fixed.image_ridge else of_images
        captions = [fixed.caption_ridge] if fixed.caption_ridge else of_captions
        return [(i, c) for c in captions for i in images]

    def _added_to(self, correlation: CanonicalCorrelation) -> Callable[..., tuple[float, float]]:
        """Return what makes of a pair of ridges what is added to the covariances' diagonals."""
        if self.settings.regularisation == "absolute":
            return lambda image_ridge, caption_ridge: (image_ridge, caption_ridge)
        of_image, of_caption = correlation.largest_eigenvalues()
        return lambda image_ridge, caption_ridge: (
            image_ridge * of_image + _FLOOR,
            caption_ridge * of_caption + _FLOOR,
        )

    def _network(self, moments: Moments, found: Directions) -> nn.ModuleDict:
        rho = torch.from_numpy(found.correlations)
        scale = (
            rho if self.settings.scaling == "correlation" else 1.0 + rho
        ) ** self.settings.power
        to_image, to_caption = (torch.from_numpy(d) * scale for d in (found.images, found.captions))
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
