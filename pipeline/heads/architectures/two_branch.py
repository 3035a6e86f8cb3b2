"""Two-branch network with a bidirectional ranking loss and structure-preserving constraints.

Deviations: inputs are standardised (one mean vector and one scale per side, from the training
split), since batch norm follows only the last layer and the features have other ranges than the
paper's fc7 and Fisher vectors; the loss is a mean, see
`pipeline.heads.losses.structure.top_violations`; the epoch is selected by validation rsum, where
the paper states "convergence within 30 epochs on average".
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.heads.base import choice, epoch_selection, numbers, setting
from pipeline.heads.inputs.batches import (
    Batch,
    batches_with_siblings,
    require_two_images,
    shuffled_captions,
)
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import HeadInputs, require_vectors
from pipeline.heads.inputs.links import LinkedBatch, linked_batches, require_two_phrases
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.layers.scaling import Standardised, UnitLength
from pipeline.heads.losses.ranking import over_prefixes, require_prefixes
from pipeline.heads.losses.structure import structure_preserving_loss
from pipeline.heads.training.task import TrainingTask, steps
from pipeline.heads.training.trainer import network_kind


@dataclass(frozen=True)
class TwoBranchSettings:
    """Settings of section 3.1, including the terms of eq. (5), and of section 3.3."""

    branches: str = choice("nonlinear", "linear")  # "linear": one linear layer, no batch norm
    hidden: int = setting(2048, at_least=1)  # dimension after the first layer
    dim: int = setting(512, at_least=1)  # of the embedding space
    dropout: float = setting(0.5, below=1)  # after the ReLU
    batch_norm: bool = setting(True)  # after the last layer, for faster and stabler training (3.1)
    epochs: int = setting(30, at_least=1)
    batch_size: int = setting(1500, at_least=1)  # pairs, before siblings
    learning_rate: float = setting(0.1)  # of SGD
    momentum: float = setting(0.9, below=1)
    weight_decay: float = setting(5e-4)
    lr_decay_every: int = setting(10, at_least=1)  # epochs
    lr_decay: float = setting(0.1)
    margin: float = setting(0.1)  # m
    top_k: int = setting(50, at_least=1)  # K, violations counted per positive pair
    text_to_image_weight: float = setting(2.0)  # lambda_1; 0: one-directional ranking
    structure_weight: float = setting(0.2)  # lambda_3
    image_structure_weight: float = setting(0.0)  # lambda_2, for regions that share a phrase
    matryoshka: tuple[int, ...] = numbers(int, at_least=1)  # prefix lengths; see `over_prefixes`
    matryoshka_weights: tuple[float, ...] = numbers(float)
    # Whether a batch includes a second sentence of each image, which the structure term needs;
    # the paper's models without structure do not.
    siblings: bool = setting(True)
    mined_each: int = setting(0)  # mined boxes per phrase of a batch, sampled anew in each epoch
    selection: str = epoch_selection()


def task(settings: TwoBranchSettings, inputs: HeadInputs) -> TrainingTask:
    """Return the training task of a two-branch network, compared by cosine.

    Each branch is linear, ReLU, dropout, linear, batch norm, L2; the linear variant of section 3.2
    is linear, L2. The loss is `pipeline.heads.losses.structure.structure_preserving_loss`.

    Source: Wang, Li & Lazebnik 2016, sections 2, 3.1, 3.2 and, for regions and phrases, 3.3.
    Inputs: images (n, d) and captions (m, e), one vector per row; pairs with links are regions and
        phrases in a many-to-many relation.
    Relations: without structure terms and with `top_k` 1, one term of the loss is that of VSE++
        with distances in place of scores.
    """
    s = settings
    require_prefixes("two-branch", s.matryoshka, s.matryoshka_weights, s.dim, "cosine")
    dims = {
        "image": require_vectors("two-branch", inputs.images),
        "caption": require_vectors("two-branch", inputs.captions),
    }

    def build(words: Features | None) -> nn.ModuleDict:
        return nn.ModuleDict({side: _branch(s, dim) for side, dim in dims.items()})

    def loss(
        net: nn.ModuleDict, batch: Batch | LinkedBatch, epoch: int, generator: torch.Generator
    ) -> Tensor:
        def of_sides(images: Tensor, captions: Tensor) -> Tensor:
            return structure_preserving_loss(
                images,
                captions,
                batch.matches,
                s.margin,
                s.top_k,
                text_to_image=s.text_to_image_weight,
                image_structure=s.image_structure_weight,
                sentence_structure=s.structure_weight,
                negatives=batch.negatives if isinstance(batch, LinkedBatch) else None,
            )

        return over_prefixes(
            of_sides,
            net["image"](batch.images),
            net["caption"](batch.captions),
            s.matryoshka,
            s.matryoshka_weights,
        )

    def prepare(net: nn.ModuleDict, train: Pairs) -> None:
        for side, rows in (("image", train.images), ("caption", train.captions)):
            net[side].fit(rows)  # type: ignore[operator]

    return TrainingTask(
        similarity="cosine",
        build=build,
        loss=loss,
        batches=lambda image_of_caption, rng: (
            batches_with_siblings if s.siblings else shuffled_captions
        )(image_of_caption, s.batch_size, rng),
        optimiser=lambda net: torch.optim.SGD(
            net.parameters(), s.learning_rate, s.momentum, weight_decay=s.weight_decay
        ),
        rate=steps(s.lr_decay_every, s.lr_decay),
        epochs=s.epochs,
        require=lambda pairs: (require_two_phrases if pairs.links else require_two_images)(pairs),
        prepare=prepare,
        linked_batches=lambda pairs, rng: linked_batches(pairs, s.batch_size, s.mined_each, rng),
    )


def _branch(s: TwoBranchSettings, inputs: int) -> nn.Module:
    """Return a branch with torch's default initialisation, from torch's global generator."""
    if s.branches == "linear":
        return Standardised(inputs, nn.Linear(inputs, s.dim), UnitLength())
    return Standardised(
        inputs,
        nn.Linear(inputs, s.hidden),
        nn.ReLU(),
        nn.Dropout(s.dropout),
        nn.Linear(s.hidden, s.dim),
        *[nn.BatchNorm1d(s.dim)] * s.batch_norm,
        UnitLength(),
    )


HEAD = network_kind(TwoBranchSettings, task)
