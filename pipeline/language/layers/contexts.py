"""Context layers: from the words before a position to a vector that is compared with all words.

Each has `words` (vocab_size, n), the output word vectors.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

_START_SCALE = 0.01  # as in the program of Kiros et al. 2014 (ICML)


class LogBilinear(nn.Module):
    """r = sum of C_i r(w_i) over the previous words (Kiros et al. 2014, eq. 7)."""

    def __init__(self, vocab_size: int, dim: int, context: int) -> None:
        """Initialise the weights from torch's global generator."""
        super().__init__()
        # Word vectors, common to input and output.
        self.words = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5)
        # C_i of each position, the nearest word's last.
        self.contexts = nn.Parameter(torch.randn(context, dim, dim) * _START_SCALE)

    def forward(self, contexts: Tensor) -> Tensor:
        """Return (positions, dim) of (positions, context) int64."""
        seen = embedding(contexts, self.words).flatten(1)
        return seen @ self.contexts.transpose(1, 2).flatten(0, 1)


class Factored(nn.Module):
    """W_fk r, where r = sum of C_i E(w_i) and E = W_fk' W_fv (Kiros et al. 2014, eq. 9 and 10).

    W_fk C_i W_fk' (factors x factors) are multiplied first, so that no word vector has `dim`
    numbers.
    """

    def __init__(self, vocab_size: int, dim: int, factors: int, context: int) -> None:
        """Initialise the weights from torch's global generator."""
        super().__init__()
        self._cached: tuple[tuple[int, int, torch.device], Tensor] | None = None
        self.words = nn.Parameter(torch.randn(vocab_size, factors) * factors**-0.5)  # W_fv'
        self.folding = nn.Parameter(torch.randn(factors, dim) * dim**-0.5)  # W_fk
        # C_i of each position, the nearest word's last.
        self.contexts = nn.Parameter(torch.randn(context, dim, dim) * _START_SCALE)

    def forward(self, contexts: Tensor) -> Tensor:
        """Return (positions, factors) of (positions, context) int64."""
        return embedding(contexts, self.words).flatten(1) @ self._between()

    def _between(self) -> Tensor:
        """Return W_fk C_i W_fk' of all positions; cached in evaluation, for single words."""
        # Counters of in-place changes, so that a step of the optimiser invalidates the product.
        made_of = (self.folding._version, self.contexts._version, self.folding.device)
        if not torch.is_grad_enabled() and self._cached and self._cached[0] == made_of:
            return self._cached[1]
        between = self.folding @ self.contexts @ self.folding.T
        flat = between.transpose(1, 2).flatten(0, 1)
        self._cached = None if torch.is_grad_enabled() else (made_of, flat)
        return flat
