"""The two-branch network with bi-directional ranking and structure-preserving constraints.

Wang, Li & Lazebnik 2016. Each branch: linear, ReLU, dropout, linear, batch norm, L2; or, of the
linear models of section 3.2, linear and L2. The defaults are the paper's for Fisher vectors and
tf-idf; for mean word vectors it uses hidden 1024 and dim 256. Its six models are `branches`
linear or nonlinear, with `text_to_image` 0 (one-directional) or 2, and `structure` 0 or 0.2.
Deviations: the inputs are centred and scaled (one mean vector and one scale a side, of the
training split), since batch norm comes only after the last layer and our features have other
ranges than the paper's fc7 and Fisher vectors; for the reduction of the loss see
`pipeline.heads.losses.top_violations`; the epoch is chosen by rsum on the validation split,
where the paper says "convergence within 30 epochs on average".
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.design import Batch, Design
from pipeline.heads.inputs import Inputs, require_vectors
from pipeline.heads.interface import choice, setting
from pipeline.heads.losses import structure_preserving_loss
from pipeline.heads.pairs import Features, Pairs, Rows, mean_and_scale
from pipeline.heads.sampling import batches_with_siblings, require_two_images
from pipeline.heads.schedules import steps


@dataclass(frozen=True)
class TwoBranchSettings:
    """Settings of section 3.1; the last three name the terms of eq. (5).

    branches : "nonlinear", or "linear" for a single linear layer a branch, without batch norm.
    hidden, dim : outputs of the two linear layers of each branch; a linear one has no hidden.
    dropout : probability, after the ReLU.
    epochs, batch_size : an epoch is every pair once; a batch counts pairs before siblings.
    learning_rate, momentum, weight_decay : of SGD.
    decay_every, decay : the learning rate is multiplied by `decay` every so many epochs.
    margin, top : m, and K, the violations that count for each positive pair.
    text_to_image, structure : lambda_1 and lambda_3.
    """

    branches: str = choice("nonlinear", "linear")
    hidden: int = setting(2048, at_least=1)
    dim: int = setting(512, at_least=1)
    dropout: float = setting(0.5, below=1)
    epochs: int = setting(30, at_least=1)
    batch_size: int = setting(1500, at_least=1)
    learning_rate: float = setting(0.1)
    momentum: float = setting(0.9, below=1)
    weight_decay: float = setting(5e-4)
    decay_every: int = setting(10, at_least=1)
    decay: float = setting(0.1)
    margin: float = setting(0.1)
    top: int = setting(50, at_least=1)
    text_to_image: float = setting(2.0)
    structure: float = setting(0.2)


class Branch(nn.Module):
    """One side: standardise, the layers, L2."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, layers: nn.Sequential) -> None:
        """Take the dimension of a row and what is learnt."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(()))
        self.layers = layers

    def standardise_as(self, rows: Rows) -> None:
        """Take the mean vector and the one overall scale of the training features."""
        mean, scale = mean_and_scale(rows)
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.fill_(scale or 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) unit vectors of (n, inputs)."""
        return F.normalize(self.layers((x - self.mean) / self.scale), dim=1)


def design(settings: TwoBranchSettings, inputs: Inputs) -> Design:
    """Return the two-branch network for inputs that are vectors.

    Raises
    ------
    HeadError
        A side has no vectors.
    """
    s = settings
    dims = {
        "image": require_vectors("two-branch", inputs.images),
        "caption": require_vectors("two-branch", inputs.captions),
    }

    def build(words: Features | None) -> nn.ModuleDict:
        return nn.ModuleDict({side: Branch(dim, _layers(s, dim)) for side, dim in dims.items()})

    def loss(net: nn.ModuleDict, batch: Batch, generator: torch.Generator) -> Tensor:
        return structure_preserving_loss(
            net["image"](batch.images),
            net["caption"](batch.captions),
            batch.owner,
            s.margin,
            s.top,
            s.text_to_image,
            s.structure,
        )

    def prepare(net: nn.ModuleDict, train: Pairs) -> None:
        for side, rows in (("image", train.images), ("caption", train.captions)):
            net[side].standardise_as(rows)  # type: ignore[operator]

    return Design(
        similarity="cosine",
        build=build,
        loss=loss,
        batches=lambda owner, rng: batches_with_siblings(owner, s.batch_size, rng),
        optimiser=lambda net: torch.optim.SGD(
            net.parameters(), s.learning_rate, s.momentum, weight_decay=s.weight_decay
        ),
        rate=steps(s.decay_every, s.decay),
        epochs=s.epochs,
        require=require_two_images,
        prepare=prepare,
    )


def _layers(s: TwoBranchSettings, inputs: int) -> nn.Sequential:
    """Return layers with torch's default initialisation, drawn from torch's global generator."""
    if s.branches == "linear":
        return nn.Sequential(nn.Linear(inputs, s.dim))
    return nn.Sequential(
        nn.Linear(inputs, s.hidden),
        nn.ReLU(),
        nn.Dropout(s.dropout),
        nn.Linear(s.hidden, s.dim),
        nn.BatchNorm1d(s.dim),
    )
