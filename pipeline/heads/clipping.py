"""Gradient clipping: each parameter's gradient by itself, or all together."""

from collections.abc import Callable, Iterable

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
