"""Encoders over image cells and caption words: transformers, or other layers for comparison.

Yan 2019, sections 2.1 to 2.3. Our choices where the paper is silent: the feedforward sublayer is
linear, ReLU, linear with four times the width, as in Vaswani et al. 2017; its residual is the
output of the attention sublayer, where the paper prints the layer's input (of another dimension in
the first caption layer); there is no final layer norm; padding is masked in attention and pooling.
The other layers are not in its experiments: graph attention and relation networks replace the
self-attention of a transformer layer, and a GRU replaces the layer.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.layers.recurrence import pack, run_recurrent, unpack, words_first
from pipeline.heads.layers.relations import GraphAttention, Relations
from pipeline.text.encoders.token_ids import PADDING

# Small compared with word vectors: word order starts as a hint, which training may amplify.
_POSITION_SCALE = 0.02


@dataclass(frozen=True)
class Stack:
    """Architecture of an encoder's layers."""

    dim: int  # of the output
    heads: int  # of the attention
    layers: int
    dropout: float  # after each sublayer and on word vectors
    pooling: str  # "mean" or "max" of the last layer's nodes
    positions: bool = True  # learnt; otherwise nodes are a set
    layer: str = "transformer"  # or "graph-attention" or "relation", other attentions, or "gru"

    def build(self, inputs: int) -> nn.ModuleList:
        """Return the layers; the first reads nodes of dimension `inputs`."""
        widths = [inputs] + [self.dim] * (self.layers - 1)
        if self.layer == "gru":
            return nn.ModuleList(GruLayer(width, self.dim, self.dropout) for width in widths)
        return nn.ModuleList(
            TransformerLayer(width, self.dim, self._attention(width), self.dropout)
            for width in widths
        )

    def _attention(self, inputs: int) -> nn.Module:
        if self.layer == "relation":
            return Relations(inputs, self.dim)
        kind = GraphAttention if self.layer == "graph-attention" else SelfAttention
        return kind(inputs, self.dim, self.heads)


class SelfAttention(nn.Module):
    """Multi-head self-attention without biases: softmax(Q K' / sqrt(d)) V, then W^O.

    Equivalent to `nn.MultiheadAttention` with `bias=False`, but `inputs` may differ from `dim`.
    """

    def __init__(self, inputs: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(inputs, 3 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of nodes (n, l, inputs) masked by `present` (n, l) bool."""
        n, length, _ = x.shape
        parts = self.query_key_value(x).view(n, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        # Fully masked rows attend to everything: the unused result stays finite.
        seen = present | ~present.any(dim=1, keepdim=True)
        attended = F.scaled_dot_product_attention(query, key, value, seen[:, None, None, :])
        mixed: Tensor = self.output(attended.transpose(1, 2).reshape(n, length, -1))
        return mixed


class TransformerLayer(nn.Module):
    """One pre-norm layer: self-attention, then feedforward, each after a layer norm.

    Dropout follows each sublayer. The attention sublayer has a residual unless it changes the
    dimension. Equivalent to `nn.TransformerEncoderLayer` with `norm_first=True`, but with any
    attention and without dropout within the sublayers.
    """

    def __init__(self, inputs: int, dim: int, attention: nn.Module, dropout: float) -> None:
        super().__init__()
        self.residual: bool = inputs == dim
        self.before_attention = nn.LayerNorm(inputs)
        self.attention = attention
        self.before_feedforward = nn.LayerNorm(dim)
        self.feedforward = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of nodes (n, l, inputs)."""
        z = self.dropout(self.attention(self.before_attention(x), present))
        if self.residual:
            z = x + z
        added: Tensor = z + self.dropout(self.feedforward(self.before_feedforward(z)))
        return added


class GruLayer(nn.Module):
    """A bidirectional GRU layer with half of the dimension per direction.

    Cells are read row by row from the top left. As after a transformer layer, each state depends
    on all nodes, but sequentially.
    """

    def __init__(self, inputs: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.rnn = nn.GRU(inputs, dim // 2, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return (n, l, dim) of nodes (n, l, inputs); masked ones are skipped and zero."""
        order = words_first(~present)
        x = x.gather(1, order[:, :, None].expand_as(x))
        states, _ = run_recurrent(self.rnn, pack(x, present.sum(dim=1)))
        padded = unpack(states, batch_first=True, length=x.shape[1])
        back = order.argsort(dim=1)
        padded = padded.gather(1, back[:, :, None].expand_as(padded))
        dropped: Tensor = self.dropout(padded.masked_fill(~present[:, :, None], 0.0))
        return dropped


def pooled(nodes: Tensor, present: Tensor, pooling: str) -> Tensor:
    """Return (n, dim) unit vectors, "mean" or "max" of nodes (n, l, dim) masked by (n, l)."""
    absent = ~present[:, :, None]
    if pooling == "mean":
        # The sum has the direction of the mean.
        vectors = nodes.masked_fill(absent, 0.0).sum(dim=1)
    else:
        highest = nodes.masked_fill(absent, -torch.inf).amax(dim=1)
        vectors = highest.masked_fill(absent.all(dim=1), 0.0)
    return F.normalize(vectors, dim=1)


def _positions(length: int, dim: int, stack: Stack) -> nn.Parameter:
    """Return learnt position vectors (length, dim), or fixed zeros without positions."""
    if not stack.positions:
        return nn.Parameter(torch.zeros(length, dim), requires_grad=False)
    return nn.Parameter(torch.randn(length, dim) * _POSITION_SCALE)


class GridEncoder(nn.Module):
    """Image side: a linear map of each cell, learnt positions, layers, pooling."""

    def __init__(self, cells: int, channels: int, stack: Stack) -> None:
        super().__init__()
        self.pooling: str = stack.pooling
        self.project = nn.Linear(channels, stack.dim)
        self.positions: nn.Parameter = _positions(cells, stack.dim, stack)
        self.layers: nn.ModuleList = stack.build(stack.dim)

    def nodes(self, grids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (n, cells, dim) of grids (n, ..., channels), and an all-true mask."""
        x = self.project(grids.flatten(1, -2)) + self.positions
        present = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        for layer in self.layers:
            x = layer(x, present)
        return x, present

    def forward(self, grids: Tensor) -> Tensor:
        """Return (n, dim) unit vectors of grids (n, ..., channels)."""
        return pooled(*self.nodes(grids), self.pooling)


class WordEncoder(nn.Module):
    """Caption side: word vectors, learnt positions, layers, pooling.

    In training, each caption is shifted by a random number of positions (torch's generator) within
    the longest caption of its batch, so that first words do not always get the first positions.
    In evaluation, and without `shifted`, the first word is at the first position.
    """

    def __init__(
        self, words: nn.Embedding, length: int, stack: Stack, shifted: bool = True
    ) -> None:
        super().__init__()
        self.shifted = shifted
        self.pooling: str = stack.pooling
        self.words = words
        self.positions: nn.Parameter = _positions(length, words.embedding_dim, stack)
        self.dropout = nn.Dropout(stack.dropout)
        self.layers: nn.ModuleList = stack.build(words.embedding_dim)

    def nodes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (n, l, dim) of token ids (n, length) float32, and the word mask."""
        ids = rows.long()
        lengths = (ids != PADDING).sum(dim=1)
        room = lengths.max() - lengths
        if self.training and self.shifted:
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
    """Return (n, l) token ids with the contiguous words of each row moved to its shift (n,)."""
    words = ids != PADDING
    # A program has one width for all batches.
    exporting = torch.compiler.is_exporting()
    width = ids.shape[1] if exporting else max(1, int(words.sum(dim=1).max()))
    first = words.int().argmax(dim=1)
    source = torch.arange(width, device=ids.device) + (first - shift)[:, None]
    inside = (source >= 0) & (source < ids.shape[1])
    taken = ids.gather(1, source.clamp(0, ids.shape[1] - 1))
    return taken.masked_fill(~inside, PADDING)
