"""Gradient clipping: each parameter's gradient by itself, or all together."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import nn

Clip = Callable[[Iterable[nn.Parameter]], None]


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


Rate = Callable[[int, Sequence[float]], float]


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
    paper asks for `hold` such epochs in a row.
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
