"""The training task: modules, loss and optimisation of a trained head.

`pipeline.heads.training.trainer` runs it; everything else is the same for all heads.
"""

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
    """Definition of a trained head.

    Attributes
    ----------
    similarity : str. Name of the similarity to compare its embeddings with.
    build : callable. Builds the modules "image" and "caption", each from float32 rows to embeddings
        in evaluation mode, and any others, from word vectors (vocab_size, d) float32 with NaN rows,
        or None. Called under a seeded torch generator; parameter shapes do not depend on the word
        vectors. The state dictionary has everything learnt or prepared.
    loss : callable. Computes the scalar loss from the modules in training mode, a batch on their
        device, the epoch (from 0), and a CPU generator for sampled negatives.
    batches : callable. Batches of an epoch; the loss gets a `Batch` for each.
    figures : callable or None. Computes validation metrics from the modules in evaluation mode, the
        validation split and the device; None: retrieval metrics.
    score : str. Name of the metric to maximise; "map" is computed for it alone.
    last_epoch : bool. Whether the weights of the last epoch are kept, without early stopping;
        `score` is then for `rate` alone.
    linked_batches : callable or None. Batches of an epoch of pairs with links; the loss then gets a
        `LinkedBatch`. None: links are ignored.
    optimiser : callable. Builds the optimiser of the modules' parameters.
    rate : callable. Factor on the learning rate of each parameter group, from the epoch (from 0)
        and the validation scores of earlier epochs; see `steps`, `milestones` and `plateau`.
    epochs : int. Maximum number of epochs.
    clip : callable or None. Clips gradients before each step; see `per_tensor` and `overall`.
    patience : int or None. Training stops after `patience` + 1 consecutive epochs without
        improvement; None: no early stopping.
    require : callable or None. Raises HeadError for unsuitable training data before anything is
        built.
    prepare : callable or None. Sets buffers from the training data before the first epoch.
    """

    similarity: str
    build: Callable[[Features | None], nn.ModuleDict]
    loss: Loss
    batches: Batches
    optimiser: Callable[[nn.ModuleDict], torch.optim.Optimizer]
    rate: Rate
    epochs: int
    clip: Clip | None = None
    patience: int | None = None
    require: Callable[[Pairs], None] | None = None
    prepare: Callable[[nn.ModuleDict, Pairs], None] | None = None
    figures: Callable[[nn.ModuleDict, Any, torch.device], dict[str, float]] | None = None
    score: str = "rsum"
    last_epoch: bool = False
    linked_batches: Callable[[Pairs, np.random.Generator], Iterable[LinkedRows]] | None = None


def per_tensor(norm: float) -> Clip:
    """Return a clipping of each parameter's gradient to an L2 norm of at most `norm`.

    As in the programs of order-embeddings (Theano) and Word2VisualVec (Keras' clipnorm).
    """

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            nn.utils.clip_grad_norm_([parameter], norm)

    return clip


def overall(norm: float) -> Clip:
    """Return a clipping of all gradients together to an L2 norm of at most `norm`.

    As in the program of VSE++.
    """

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(list(parameters), norm)

    return clip


def steps(every: int, factor: float) -> Rate:
    """Return a schedule that multiplies the learning rate by `factor` every `every` epochs."""
    return lambda epoch, scores: factor ** (epoch // every)


def milestones(factors: Mapping[int, float]) -> Rate:
    """Return a schedule that is piecewise constant, and 1 before the first milestone.

    Parameters
    ----------
    factors : mapping of int to float. Epoch, from 0 -> factor on the initial learning rate from
        then on.
    """

    def rate(epoch: int, scores: Sequence[float]) -> float:
        reached = [start for start in factors if start <= epoch]
        return factors[max(reached)] if reached else 1.0

    return rate


def plateau(factor: float, hold: int) -> Rate:
    """Return a schedule that lowers the learning rate when the validation score stops improving.

    As in the program of Dong et al. 2018 (Word2VisualVec): after an epoch without improvement, the
    rate is multiplied by `factor`, if it has been used for at least `hold` epochs. The paper
    requires `hold` consecutive epochs without improvement.
    """

    def rate(epoch: int, scores: Sequence[float]) -> float:
        current, used, best = 1.0, 0, float("-inf")
        for score in scores[:epoch]:
            used += 1
            if score > best:
                best = score
            elif used >= hold:
                current, used = current * factor, 0
        return current

    return rate
