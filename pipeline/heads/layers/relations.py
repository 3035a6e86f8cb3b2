"""Two alternatives to self-attention over a set of entities: graph attention and relations.

Yan 2019 presents both as background (sections 1.5.1 and 1.5.3) and trains neither. Here each
replaces the attention sublayer of a transformer layer, so that the sublayers alone differ. Both
treat the entities as the nodes of a complete graph.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_NEGATIVE_SLOPE = 0.2  # Velickovic et al. 2018, section 2.1


class GraphAttention(nn.Module):
    """Multi-head graph attention, Velickovic et al. 2018, equations (1) to (5).

    The weight of node j for node i is softmax_j(LeakyReLU(a . [W x_i, W x_j])). Deviation: no ELU
    follows, since a feedforward sublayer does.
    """

    def __init__(self, inputs: int, dim: int, heads: int) -> None:
        super().__init__()
        self.transform = nn.Linear(inputs, dim, bias=False)
        self.scores = nn.Parameter(torch.empty(2, heads, dim // heads))
        nn.init.xavier_uniform_(self.scores)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of entities (n, l, inputs); `present` (n, l) bool masks padding."""
        heads, size = self.scores.shape[1:]
        h = self.transform(x).unflatten(2, (heads, size))
        of_i, of_j = torch.einsum("nlhs,phs->pnhl", h, self.scores)
        scores = F.leaky_relu(of_i[..., :, None] + of_j[..., None, :], _NEGATIVE_SLOPE)
        # A row of padding alone attends to all of it: the result is unused and finite.
        seen = present | ~present.any(dim=1, keepdim=True)
        weights = scores.masked_fill(~seen[:, None, None, :], -torch.inf).softmax(dim=3)
        return torch.einsum("nhij,njhs->nihs", weights, h).flatten(2)


class Relations(nn.Module):
    """A relation network: the mean over j of g(x_i, x_j), Santoro et al. 2017, equation (1).

    g has one hidden layer of ReLU units. The paper sums over all pairs; here each entity keeps the
    mean of its own pairs, so that the layer returns entities.
    """

    def __init__(self, inputs: int, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, dim)
        self.second = nn.Linear(inputs, dim, bias=False)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of entities (n, l, inputs); `present` (n, l) bool masks padding."""
        # The hidden layer of a pair is a sum of two parts, and the mean commutes with the output
        # layer: memory is that of n l^2 hidden units, without a product for each pair.
        hidden = F.relu(self.first(x)[:, :, None] + self.second(x)[:, None])
        counted = present.to(hidden.dtype)
        weights = counted / counted.sum(dim=1, keepdim=True).clamp_min(1)
        means: Tensor = self.output(torch.einsum("nijd,nj->nid", hidden, weights))
        return means
