"""Gates: from a sentence's condition and tags to a modification of the context vector.

`join` applies it: a gate's factors multiply the vector, a shift is added. `forward` computes the
factors of many positions; `begin` computes what sentences with the same condition or tags share,
and `at` the factors of one position per sentence from it.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from pipeline.text.encoders.token_ids import PADDING


def forward_tags(tags: Tensor, forward: int) -> Tensor:
    """Return the tag at each position and the next ones, (sentences, length, forward + 1) int64."""
    return pad(tags, (0, forward), value=PADDING).unfold(1, forward + 1, 1)


class _Content(nn.Module):
    """A linear map of the condition, constant over a sentence."""

    of_content: nn.Parameter

    def forward(
        self, conditions: Tensor, tags: Tensor | None, sentences: Tensor, places: Tensor
    ) -> Tensor:
        """Return (positions, dim); see `StructureGate.forward`."""
        return self.begin(conditions, tags)["content"][sentences]

    def begin(self, conditions: Tensor, tags: Tensor | None) -> dict[str, Tensor]:
        """Return "content", the factors of each condition."""
        return {"content": conditions @ self.of_content.T}

    def at(self, shared: dict[str, Tensor], rows: dict[str, Tensor]) -> Tensor:
        """Return (sentences, dim); see `StructureGate.at`."""
        return shared["content"][rows["condition"]]


class ContentGate(_Content):
    """W_fd u (Kiros et al. 2014, eq. 9), a factor of the context vector; or a shift of it.

    A shift is C_m u: MLBL-B of Kiros et al. 2014 (ICML), section 3.1.
    """

    def __init__(self, condition_dim: int, dim: int, *, shift: bool = False) -> None:
        """Initialise the weights from torch's global generator."""
        super().__init__()
        self.join = torch.add if shift else torch.mul
        scale = condition_dim**-0.5 if shift else 1.0
        self.of_content = nn.Parameter(torch.randn(dim, condition_dim) * scale)


class ContentItself(_Content):
    """u, appended to the vector: the output layer contracts it with a tensor."""

    @staticmethod
    def join(vectors: Tensor, content: Tensor) -> Tensor:
        """Return both concatenated."""
        return torch.cat([vectors, content], dim=1)

    def begin(self, conditions: Tensor, tags: Tensor | None) -> dict[str, Tensor]:
        """Return "content", the conditions."""
        return {"content": conditions}


class StructureGate(nn.Module):
    """W_fd u', with u' = max(0, sum of T_i t_i + T_u u + b) (Kiros et al. 2014, eq. 11)."""

    join = staticmethod(torch.mul)

    def __init__(
        self, num_tags: int, condition_dim: int, dim: int, factors: int, forward: int
    ) -> None:
        """Initialise the weights from torch's global generator."""
        super().__init__()
        self.tags = nn.Parameter(torch.randn(num_tags, dim) * dim**-0.5)  # t of each tag id
        # T_i of each offset, the word's own first.
        self.structure = nn.Parameter(torch.randn(forward + 1, dim, dim) * dim**-0.5)
        self.content = nn.Parameter(torch.randn(dim, condition_dim))  # T_u
        self.bias = nn.Parameter(torch.zeros(dim))
        self.of_attribute = nn.Parameter(torch.randn(factors, dim) * dim**-0.5)  # W_fd

    def forward(
        self, conditions: Tensor, tags: Tensor | None, sentences: Tensor, places: Tensor
    ) -> Tensor:
        """Return the factors (positions, factors) float32 at a place of a sentence each."""
        assert tags is not None
        after = len(self.structure)
        ids = forward_tags(tags, after - 1)[sentences, places]
        content = conditions @ self.content.T + self.bias
        attribute = (self._ahead(ids) + content[sentences]).relu()
        return attribute @ self.of_attribute.T

    def begin(self, conditions: Tensor, tags: Tensor | None) -> dict[str, Tensor]:
        """Return T_u u + b, (conditions, dim), and the sum of T_i t_i, (sequences, length, dim)."""
        assert tags is not None
        ids = forward_tags(tags, len(self.structure) - 1)
        ahead = self._ahead(ids.flatten(0, 1)).view(*tags.shape, -1)
        return {"content": conditions @ self.content.T + self.bias, "ahead": ahead}

    def at(self, shared: dict[str, Tensor], rows: dict[str, Tensor]) -> Tensor:
        """Return the factors (sentences, factors) float32 at one place of each sentence.

        `shared` is the result of `begin`, and `rows` has the rows in it, "condition" and "tags".
        """
        # Words after the last tag have its factors.
        last = shared["ahead"].shape[1] - 1
        ahead = shared["ahead"][rows["tags"], rows["place"].clamp_max(last)]
        return (ahead + shared["content"][rows["condition"]]).relu() @ self.of_attribute.T

    def _ahead(self, ids: Tensor) -> Tensor:
        """Return the sum of T_i t_i, (positions, dim), of tag ids (positions, forward + 1)."""
        # T_i t of every tag, so that a position sums rows without a product.
        table = (self.structure @ self.tags.T).transpose(1, 2).flatten(0, 1)
        offset = torch.arange(len(self.structure), device=ids.device) * len(self.tags)
        return embedding(ids + offset, table).sum(dim=1)
