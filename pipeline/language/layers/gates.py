"""From the condition of a sentence, and its tags, to what changes the context's vector.

`join` puts both together: a gate's factors multiply it, a shift is added to it.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from pipeline.language.sentences import forward_tags


class ContentShift(nn.Module):
    """C_m u, added at each place of a sentence: MLBL-B of Kiros et al. 2014 (ICML), section 3.1."""

    join = staticmethod(torch.add)

    def __init__(self, condition_dim: int, dim: int) -> None:
        """Draw the weights from torch's global generator."""
        super().__init__()
        self.of_content = nn.Parameter(torch.randn(dim, condition_dim) * condition_dim**-0.5)

    def forward(
        self, conditions: Tensor, tags: Tensor | None, sentences: Tensor, places: Tensor
    ) -> Tensor:
        """Return (positions, dim); see `StructureGate.forward`."""
        return (conditions @ self.of_content.T)[sentences]


class ContentGate(nn.Module):
    """W_fd u: the same at each place of a sentence (Kiros et al. 2014, eq. 9)."""

    join = staticmethod(torch.mul)

    def __init__(self, condition_dim: int, factors: int) -> None:
        """Draw the weights from torch's global generator."""
        super().__init__()
        self.of_content = nn.Parameter(torch.randn(factors, condition_dim))

    def forward(
        self, conditions: Tensor, tags: Tensor | None, sentences: Tensor, places: Tensor
    ) -> Tensor:
        """Return (positions, factors); see `StructureGate.forward`."""
        return (conditions @ self.of_content.T)[sentences]


class StructureGate(nn.Module):
    """W_fd u', with u' = max(0, sum of T_i t_i + T_u u + b) (Kiros et al. 2014, eq. 11).

    Attributes
    ----------
    tags : (tags, dim), a vector t for each tag id.
    structure : (forward + 1, dim, dim), the matrix T_i of each place, that of the word first.
    content : (dim, condition_dim), T_u.
    bias : (dim,), b.
    of_attribute : (factors, dim), W_fd.
    """

    join = staticmethod(torch.mul)

    def __init__(
        self, num_tags: int, condition_dim: int, dim: int, factors: int, forward: int
    ) -> None:
        """Draw the weights from torch's global generator."""
        super().__init__()
        self.tags = nn.Parameter(torch.randn(num_tags, dim) * dim**-0.5)
        self.structure = nn.Parameter(torch.randn(forward + 1, dim, dim) * dim**-0.5)
        self.content = nn.Parameter(torch.randn(dim, condition_dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.of_attribute = nn.Parameter(torch.randn(factors, dim) * dim**-0.5)

    def forward(
        self, conditions: Tensor, tags: Tensor | None, sentences: Tensor, places: Tensor
    ) -> Tensor:
        """Return the factors at some positions.

        Parameters
        ----------
        conditions : (sentences, condition_dim) float32.
        tags : (sentences, length) int64.
        sentences, places : (positions,) int64, where each position is.

        Returns
        -------
        (positions, factors) float32
        """
        assert tags is not None
        after = len(self.structure)
        # T_i t of every tag, so that a position sums rows and multiplies nothing.
        table = (self.structure @ self.tags.T).transpose(1, 2).flatten(0, 1)
        offset = torch.arange(after, device=tags.device) * len(self.tags)
        ids = forward_tags(tags, after - 1)[sentences, places] + offset
        content = conditions @ self.content.T + self.bias
        attribute = (embedding(ids, table).sum(dim=1) + content[sentences]).relu()
        return attribute @ self.of_attribute.T
