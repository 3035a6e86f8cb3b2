"""Encoders over the cells of an image grid and over the words of a caption: transformers, or GRUs.

Yan 2019, sections 2.1 to 2.3. What the text leaves open, and what stands here: the feedforward
sublayer is linear, ReLU, linear with four times the width between, as in Vaswani et al. 2017;
its residual is the output of the attention sublayer, where the text prints the layer's input
(which in the first caption layer has another dimension); no layer norm follows the last layer;
padding takes no part in attention or pooling. A GRU in the place of the transformer layers is no
part of the paper; it is there to compare with.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pipeline.heads.layers.recurrence import run_recurrent
from pipeline.text.encoders.token_ids import PADDING

# Small beside any word vector: order starts as a hint that training may make louder.
_POSITION_SCALE = 0.02


@dataclass(frozen=True)
class Stack:
    """What the layers of an encoder are like.

    Attributes
    ----------
    dim, heads, layers : of each layer's output; of its attention; how many.
    dropout : probability, after each sublayer and on word vectors.
    pooling : "mean" or "max", how the nodes of the last layer become one vector.
    positions : whether nodes have learnt positions; otherwise they are a set.
    layer : "transformer" or "gru".
    """

    dim: int
    heads: int
    layers: int
    dropout: float
    pooling: str
    positions: bool = True
    layer: str = "transformer"

    def build(self, inputs: int) -> nn.ModuleList:
        """Return the layers, the first of which reads entities of dimension `inputs`."""
        widths = [inputs] + [self.dim] * (self.layers - 1)
        if self.layer == "gru":
            return nn.ModuleList(GruLayer(width, self.dim, self.dropout) for width in widths)
        return nn.ModuleList(
            TransformerLayer(width, self.dim, self.heads, self.dropout) for width in widths
        )


class SelfAttention(nn.Module):
    """Multi-head self-attention without biases: softmax(Q K' / sqrt(d)) V, then W^O."""

    def __init__(self, inputs: int, dim: int, heads: int) -> None:
        """Take the dimension of the entities, that of the result, and heads that divide it."""
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(inputs, 3 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of entities (n, l, inputs), of which `present` (n, l) bool count."""
        n, length, _ = x.shape
        parts = self.query_key_value(x).view(n, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        # A row with nothing to attend to attends to all: its result is not used, and finite.
        seen = present | ~present.any(dim=1, keepdim=True)
        attended = F.scaled_dot_product_attention(query, key, value, seen[:, None, None, :])
        mixed: Tensor = self.output(attended.transpose(1, 2).reshape(n, length, -1))
        return mixed


class TransformerLayer(nn.Module):
    """One pre-norm layer: self-attention, then feedforward, each after a layer norm.

    The attention sublayer has a residual unless it changes the dimension.
    """

    def __init__(self, inputs: int, dim: int, heads: int, dropout: float) -> None:
        """Take the dimensions before and after; dropout follows each sublayer."""
        super().__init__()
        self.residual: bool = inputs == dim
        self.before_attention = nn.LayerNorm(inputs)
        self.attention = SelfAttention(inputs, dim, heads)
        self.before_feedforward = nn.LayerNorm(dim)
        self.feedforward = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of entities (n, l, inputs)."""
        z = self.dropout(self.attention(self.before_attention(x), present))
        if self.residual:
            z = x + z
        added: Tensor = z + self.dropout(self.feedforward(self.before_feedforward(z)))
        return added


class GruLayer(nn.Module):
    """A GRU that reads entities in both directions, each of which has half of the dimension.

    Cells are read in rows from the top left. Each entity's state has seen all others, as after a
    transformer layer, but one after the other.
    """

    def __init__(self, inputs: int, dim: int, dropout: float) -> None:
        """Take the dimensions before and after, the second an even one; dropout follows."""
        super().__init__()
        self.rnn = nn.GRU(inputs, dim // 2, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of entities (n, l, inputs); absent ones are zero and not read.

        Those of `present` (n, l) bool stand together in each row.
        """
        lengths = present.sum(dim=1)
        # Present ones to the front, in their order.
        order = (~present).to(torch.uint8).argsort(dim=1, stable=True)
        x = x.gather(1, order[:, :, None].expand_as(x))
        sequence = pack_padded_sequence(
            x, lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = run_recurrent(self.rnn, sequence)
        found, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        back = order.argsort(dim=1)
        found = found.gather(1, back[:, :, None].expand_as(found))
        dropped: Tensor = self.dropout(found.masked_fill(~present[:, :, None], 0.0))
        return dropped


def pooled(nodes: Tensor, present: Tensor, pooling: str) -> Tensor:
    """Return the (n, dim) unit vectors of nodes (n, l, dim), of which `present` (n, l) count.

    The pooling is "mean" or "max". A row without nodes is the zero vector.
    """
    absent = ~present[:, :, None]
    if pooling == "mean":
        # The mean and the sum have the same direction.
        vectors = nodes.masked_fill(absent, 0.0).sum(dim=1)
    else:
        highest = nodes.masked_fill(absent, -torch.inf).amax(dim=1)
        vectors = highest.masked_fill(absent.all(dim=1), 0.0)
    return F.normalize(vectors, dim=1)


def _positions(length: int, dim: int, stack: Stack) -> nn.Parameter:
    """Return the learnt vectors of places, (length, dim); zeros that stay where there are none."""
    if not stack.positions:
        return nn.Parameter(torch.zeros(length, dim), requires_grad=False)
    return nn.Parameter(torch.randn(length, dim) * _POSITION_SCALE)


class GridEncoder(nn.Module):
    """Image side: a linear map of each cell, learned positions, layers, a pool."""

    def __init__(self, cells: int, channels: int, stack: Stack) -> None:
        """Take the number of cells and channels of a grid, and what the layers are like."""
        super().__init__()
        self.pooling: str = stack.pooling
        self.project = nn.Linear(channels, stack.dim)
        self.positions = _positions(cells, stack.dim, stack)
        self.layers = stack.build(stack.dim)

    def nodes(self, grids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (n, cells, dim) of grids (n, ..., channels), all of them present."""
        x = self.project(grids.flatten(1, -2)) + self.positions
        present = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        for layer in self.layers:
            x = layer(x, present)
        return x, present

    def forward(self, grids: Tensor) -> Tensor:
        """Return (n, dim) unit vectors of grids (n, ..., channels)."""
        return pooled(*self.nodes(grids), self.pooling)


class WordEncoder(nn.Module):
    """Caption side: word vectors, learned positions, layers, a pool.

    In training each caption is moved by a random number of places, drawn from torch's generator,
    within the longest caption of its batch, so that its first words are not always those of the
    first positions. Otherwise the first word is at the first position.
    """

    def __init__(self, words: nn.Embedding, length: int, stack: Stack) -> None:
        """Take the vectors of all token ids and the length of a row of them."""
        super().__init__()
        self.pooling: str = stack.pooling
        self.words = words
        self.positions = _positions(length, words.embedding_dim, stack)
        self.dropout = nn.Dropout(stack.dropout)
        self.layers = stack.build(words.embedding_dim)

    def nodes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (n, l, dim) of token ids (n, length) float32, and which are words.

        l is the number of words of the longest caption of the batch, and 1 at least.
        """
        ids = rows.long()
        lengths = (ids != PADDING).sum(dim=1)
        room = lengths.max() - lengths
        if self.training:
            free = torch.rand(len(ids), device=ids.device) * (room + 1)
            # The product may round up to room + 1.
            shift = free.long().minimum(room)
        else:
            shift = torch.zeros_like(room)
        ids = moved(ids, shift)
        present = ids != PADDING
        x = self.dropout(self.words(ids) + self.positions[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, present)
        return x, present

    def forward(self, rows: Tensor) -> Tensor:
        """Return (n, dim) unit vectors of token ids (n, length) float32."""
        return pooled(*self.nodes(rows), self.pooling)


def moved(ids: Tensor, shift: Tensor) -> Tensor:
    """Return token ids with the first word of each row at its shift.

    Parameters
    ----------
    ids : (n, length) int64, in each row words without a gap, padding before or after them.
    shift : (n,) int64, small enough for the words to stay within the longest row.

    Returns
    -------
    (n, l) int64
        l is the number of words of the longest row, and 1 at least.
    """
    words = ids != PADDING
    width = max(1, int(words.sum(dim=1).max()))
    first = words.int().argmax(dim=1)
    source = torch.arange(width, device=ids.device) + (first - shift)[:, None]
    inside = (source >= 0) & (source < ids.shape[1])
    taken = ids.gather(1, source.clamp(0, ids.shape[1] - 1))
    return taken.masked_fill(~inside, PADDING)
