"""What a trained head fills in: its modules, its loss, and how they are optimised.

Everything else about training is the same for all heads; see `pipeline.heads.training.trainer`.
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
"""Changes the gradients of some parameters before a step."""

Rate = Callable[[int, Sequence[float]], float]
"""Factor on the learning rate, from the epoch (from 0) and the validation scores before it."""


@dataclass(frozen=True)
class TrainingTask:
    """All that makes one trained head differ from another.

    Attributes
    ----------
    similarity : name of the similarity that its embeddings are meant for.
    build : from word vectors (vocab_size, d) float32 with NaN rows, or None, to the modules "image"
        and "caption", each from float32 rows to embeddings as evaluation uses them (in evaluation
        mode); there may be more modules. Called under a seeded torch generator; the shapes of
        what it builds do not depend on whether there are word vectors. What is learnt or prepared
        is in its state dictionary.
    loss : from those modules, in training mode, a batch on their device, the epoch (from 0), and a
        generator (on the CPU) for sampled negatives, to a scalar.
    batches : of an epoch; the loss gets a `Batch` of each.
    figures : from those modules, in evaluation mode, the validation split and their device, to its
        figures; None: those of retrieval.
    score : the figure that is greatest in the best epoch.
    linked_batches : of an epoch of pairs with links; the loss then gets a `LinkedBatch`. None: such
        pairs are taken like any others.
    optimiser : of the modules' parameters.
    rate : factor on the learning rate of each parameter group, from the epoch (from 0) and the
        validation scores of the epochs before; see `steps`, `milestones` and `plateau`.
    epochs : upper bound of their number.
    clip : changes gradients before each step; see `per_tensor` and `overall`.
    patience : training stops after more than this number of epochs in a row without a better score.
    require : refuses training data with HeadError before anything is built.
    prepare : sets buffers from the training data before the first epoch.
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
    linked_batches: Callable[[Pairs, np.random.Generator], Iterable[LinkedRows]] | None = None


def per_tensor(norm: float) -> Clip:
    """Return a clipping of the L2 norm of each parameter's gradient to `norm`.

    So do the programs of order-embeddings (Theano) and Word2VisualVec (Keras' clipnorm).
    """

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            nn.utils.clip_grad_norm_([parameter], norm)

    return clip


def overall(norm: float) -> Clip:
    """Return a clipping of the L2 norm of all gradients together to `norm`.

    So does the program of VSE++.
    """

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(list(parameters), norm)

    return clip


def steps(every: int, factor: float) -> Rate:
    """Return a schedule that multiplies the learning rate by `factor` every `every` epochs."""
    return lambda epoch, scores: factor ** (epoch // every)


def milestones(factors: Mapping[int, float]) -> Rate:
    """Return a schedule with a factor from each of some epochs on, and 1 before the first.

    Parameters
    ----------
    factors : epoch, from 0 -> factor on the initial learning rate.
    """

    def rate(epoch: int, scores: Sequence[float]) -> float:
        reached = [start for start in factors if start <= epoch]
        return factors[max(reached)] if reached else 1.0

    return rate


def plateau(factor: float, hold: int) -> Rate:
    """Return a schedule that lowers the learning rate when validation does not get better.

    Dong et al. 2018 (Word2VisualVec), as their program has it: after an epoch whose score is not
    the best so far, the rate is multiplied by `factor`, if `hold` epochs or more have used it. The
    paper asks for `hold` epochs without a better score in a row.
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
