"""The training task: modules, loss and optimisation of a trained head."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.heads.inputs.batches import Batches
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.links import LinkedRows
from pipeline.heads.inputs.pairs import Pairs

Loss = Callable[[nn.ModuleDict, Any, int, torch.Generator], Tensor]
"""See `TrainingTask.loss`."""

Clip = Callable[[Iterable[nn.Parameter]], None]
"""Changes gradients of parameters before a step."""

Rate = Callable[[int, Sequence[float]], float]
"""Factor on the learning rate, from the epoch (from 0) and all earlier validation scores."""


@dataclass(frozen=True)
class TrainingTask:
    """Definition of a trained head: network, loss and optimisation; the rest is common to all.

    `pipeline.heads.training.trainer.network_kind` makes a registry entry of it.
    """

    similarity: str  # to compare the embeddings with
    # Builds the modules "image" and "caption", each from float32 rows to embeddings in evaluation
    # mode, and any others, from word vectors (vocab_size, d) with NaN rows, or None. Called under
    # a seeded torch generator; parameter shapes do not depend on the word vectors. The state
    # dictionary has everything learnt or prepared.
    build: Callable[[Features | None], nn.ModuleDict]
    # Scalar loss of the modules in training mode, a batch on their device, the epoch (from 0),
    # and a CPU generator for sampled negatives.
    loss: Loss
    batches: Batches  # caption rows of an epoch; the loss gets a `Batch` for each
    optimiser: Callable[[nn.ModuleDict], torch.optim.Optimizer]
    rate: Rate  # of each parameter group; see `steps`, `milestones` and `plateau`
    epochs: int  # at most
    clip: Clip | None = None  # before each step; see `per_tensor` and `overall`
    patience: int | None = None  # stops after `patience` + 1 consecutive epochs without improvement
    require: Callable[[Pairs], None] | None = None  # HeadError for unsuitable training data
    # Sets buffers from the training data before the first epoch.
    prepare: Callable[[nn.ModuleDict, Pairs], None] | None = None
    # Validation metrics of the modules in evaluation mode; None: retrieval metrics.
    figures: Callable[[nn.ModuleDict, Any, torch.device], dict[str, float]] | None = None
    score: str = "rsum"  # metric to maximise; "map" is computed for it alone
    # Keeps the last weights, without early stopping; `score` is then for `rate`.
    last_epoch: bool = False
    # Epoch of pairs with links; the loss then gets a `LinkedBatch`. None: links are ignored.
    linked_batches: Callable[[Pairs, np.random.Generator], Iterable[LinkedRows]] | None = None


def per_tensor(norm: float) -> Clip:
    """Return a clipping of each gradient's norm, as in order-embeddings and Word2VisualVec."""

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            nn.utils.clip_grad_norm_([parameter], norm)

    return clip


def overall(norm: float) -> Clip:
    """Return a clipping of the norm of all gradients together, as in the program of VSE++."""

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(list(parameters), norm)

    return clip


def steps(every: int, factor: float) -> Rate:
    """Return a schedule that multiplies the learning rate by `factor` every `every` epochs."""
    return lambda epoch, scores: factor ** (epoch // every)


def milestones(factors: Mapping[int, float]) -> Rate:
    """Return a piecewise constant schedule: 1, then the factor of the last epoch reached."""

    def rate(epoch: int, scores: Sequence[float]) -> float:
        reached = [start for start in factors if start <= epoch]
        return factors[max(reached)] if reached else 1.0

    return rate


def plateau(factor: float, hold: int, *, consecutive: bool = False) -> Rate:
    """Return a schedule that lowers the learning rate when the validation score stops improving.

    As in the program of Dong et al. 2018 (Word2VisualVec): after an epoch without improvement, the
    rate is multiplied by `factor`, if it has been used for at least `hold` epochs. `consecutive`
    requires `hold` consecutive epochs without improvement, as in the paper.
    """

    def rate(epoch: int, scores: Sequence[float]) -> float:
        current, used, best = 1.0, 0, float("-inf")
        for score in scores[:epoch]:
            used += 1
            if score > best:
                best, used = score, 0 if consecutive else used
            elif used >= hold:
                current, used = current * factor, 0
        return current

    return rate
