"""Learning rates as pure functions of the epoch and the validation scores so far.

Each gives the factor on the initial learning rate in an epoch, counted from 0. As nothing is
remembered between epochs, a training that is continued needs no state of its schedule.
"""

from collections.abc import Callable, Mapping, Sequence

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
