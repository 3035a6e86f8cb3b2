"""From the words before a position to a vector that is compared with every word's.

Each has `words` (vocab_size, n), the vectors that it is compared with.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

_START_SCALE = 0.01  # as in the program of Kiros et al. 2014 (ICML)


class LogBilinear(nn.Module):
    """r = sum of C_i r(w_i) over the words before (Kiros et al. 2014, eq. 7).

    Attributes
    ----------
    words : (vocab_size, dim), a vector a word, the same before a position and at it.
    contexts : (context, dim, dim), the matrix C_i of each place, the nearest word's last.
    """

    def __init__(self, vocab_size: int, dim: int, context: int) -> None:
        """Draw the weights from torch's global generator."""
        super().__init__()
        self.words = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5)
        self.contexts = nn.Parameter(torch.randn(context, dim, dim) * _START_SCALE)

    def forward(self, contexts: Tensor) -> Tensor:
        """Return (positions, dim) of (positions, context) int64."""
        seen = embedding(contexts, self.words).flatten(1)
        return seen @ self.contexts.transpose(1, 2).flatten(0, 1)


class Factored(nn.Module):
    """W_fk r, where r = sum of C_i E(w_i) and E = W_fk' W_fv (Kiros et al. 2014, eq. 9 and 10).

    W_fk C_i W_fk' are factors x factors: they are multiplied first, and no vector of a word is as
    long as `dim`.

    Attributes
    ----------
    words : (vocab_size, factors), the transposed W_fv.
    folding : (factors, dim), W_fk.
    contexts : (context, dim, dim), the matrix C_i of each place, the nearest word's last.
    """

    def __init__(self, vocab_size: int, dim: int, factors: int, context: int) -> None:
        """Draw the weights from torch's global generator."""
        super().__init__()
        self._kept: tuple[tuple[int, int], Tensor] | None = None
        self.words = nn.Parameter(torch.randn(vocab_size, factors) * factors**-0.5)
        self.folding = nn.Parameter(torch.randn(factors, dim) * dim**-0.5)
        self.contexts = nn.Parameter(torch.randn(context, dim, dim) * _START_SCALE)

    def forward(self, contexts: Tensor) -> Tensor:
        """Return (positions, factors) of (positions, context) int64."""
        return embedding(contexts, self.words).flatten(1) @ self._between()

    def _between(self) -> Tensor:
        """Return W_fk C_i W_fk' of all places; kept while nothing is learnt, for single words."""
        versions = (self.folding._version, self.contexts._version)
        if not torch.is_grad_enabled() and self._kept is not None and self._kept[0] == versions:
            return self._kept[1]
        between = self.folding @ self.contexts @ self.folding.T
        flat = between.transpose(1, 2).flatten(0, 1)
        self._kept = None if torch.is_grad_enabled() else (versions, flat)
        return flat
