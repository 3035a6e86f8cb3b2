"""Relational embeddings: transformer encoders on both sides, trained with hard negatives.

Where Yan 2019 is silent: each side has its own pool weights, initialised as a linear layer.
Deviation: the weights of the best validation epoch are kept by default; `selection: last` is that
of section 3.4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.heads.base import choice, epoch_selection, setting
from pipeline.heads.inputs.batches import Batch, require_two_images, shuffled_captions
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import HeadInputs, require_grid, require_sequence
from pipeline.heads.layers.rnn import word_table
from pipeline.heads.layers.transformer import GridEncoder, Stack, WordEncoder, pooled
from pipeline.heads.losses.nodes import cross_attention_loss, pooling_loss
from pipeline.heads.losses.ranking import max_of_hinges, mean_of_hinges
from pipeline.heads.training.task import TrainingTask, milestones
from pipeline.heads.training.trainer import network_kind
from pipeline.retrieval.torch_scores import cosine


@dataclass(frozen=True)
class RelationalSettings:
    """Settings of section 3.4, which does not state `attention_heads`, `dropout` and `pools`."""

    # "basic": on embeddings only; "pooling": also on pooled nodes (section 2.5.1);
    # "cross-attention": also on nodes (section 2.5.2).
    loss: str = choice("basic", "pooling", "cross-attention")
    pooling: str = choice("mean", "max")  # of a side's nodes to one vector
    positions: bool = setting(True)  # learnt positions of nodes; else captions are bags of words
    shifted_words: bool = setting(True)  # padding of random length before a training caption
    # "graph-attention" and "relation" replace the self-attention of a transformer, for
    # comparison, and a "gru" reads the same cells and words.
    layer: str = choice("transformer", "graph-attention", "relation", "gru")
    dim: int = setting(1024, at_least=1)  # of a node after a layer
    attention_heads: int = setting(8, at_least=1)
    image_layers: int = setting(1, at_least=1)
    caption_layers: int = setting(2, at_least=1)
    word_dim: int = setting(300, at_least=1)
    dropout: float = setting(0.0, below=1)  # after each sublayer and on word vectors
    pools: int = setting(4, at_least=1)  # P, pooled nodes per side in the pooling loss
    margin: float = setting(0.2)  # of the embedding loss
    node_margin: float = setting(0.2)
    pooling_weight: float = setting(0.8)  # of the pooling loss
    cross_attention_weight: float = setting(0.15)  # of the cross-attention loss
    mean_hinge_epochs: int = setting(0)  # initial epochs with `mean_of_hinges`; 0 in the paper
    epochs: int = setting(20, at_least=1)
    batch_size: int = setting(128, at_least=2)  # pairs
    learning_rate: float = setting(2e-5)  # of Adam
    lr_milestones: tuple[int, ...] = setting((9, 15), at_least=1)  # epochs of a half and a tenth
    selection: str = epoch_selection()


class Pools(nn.Module):
    """Node pooling, section 2.5.1: P means of the nodes, weighted by softmax(w . x)."""

    def __init__(self, pools: int, dim: int) -> None:
        super().__init__()
        self.weights = nn.Linear(dim, pools, bias=False)

    def forward(self, nodes: Tensor, present: Tensor) -> Tensor:
        """Return (n, P, dim) unit vectors of nodes (n, l, dim) masked by (n, l); zero if empty."""
        absent = ~present[:, None, :]
        scores: Tensor = self.weights(nodes).transpose(1, 2)
        # Not -inf: the softmax of a row of -inf is NaN.
        scores = scores.masked_fill(absent, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=2).masked_fill(absent, 0.0)
        return F.normalize(weights @ nodes, dim=2)


def task(settings: RelationalSettings, inputs: HeadInputs) -> TrainingTask:
    """Return the training task of relational embeddings, compared by cosine.

    Cells and words are the nodes of two graphs. The encoder of each side relates its nodes to each
    other and pools them to one unit vector; an optional intermediate loss aligns the nodes.

    Source: Yan 2019, sections 2.1 to 2.5 and 3.4.
    Inputs: images (n, *cells, channels), captions (m, length) token ids.
    Relations: as VSE++ (`pipeline.heads.architectures.vse`), but with attention over cells and
        words in place of pooled features and a GRU. Encoders are
        `pipeline.heads.layers.transformer`, node losses `pipeline.heads.losses.nodes`.
    """
    cells, channels = require_grid("relational", inputs.images)
    sequence = require_sequence("relational", inputs.captions)
    if settings.dim % settings.attention_heads:
        raise HeadError(
            f"head 'relational': attention_heads {settings.attention_heads} does not divide dim "
            f"{settings.dim}; change one of them"
        )

    if settings.layer == "gru" and settings.dim % 2:
        raise HeadError(
            f"head 'relational': a bidirectional GRU needs an even dim, found {settings.dim}; "
            "set an even number"
        )

    def stack(layers: int) -> Stack:
        return Stack(
            settings.dim,
            settings.attention_heads,
            layers,
            settings.dropout,
            settings.pooling,
            settings.positions,
            settings.layer,
        )

    def build(words: Features | None) -> nn.ModuleDict:
        table = word_table(sequence.vocab_size, settings.word_dim, words, trained=True)
        net = nn.ModuleDict(
            {
                "image": GridEncoder(cells, channels, stack(settings.image_layers)),
                "caption": WordEncoder(
                    table, sequence.dim, stack(settings.caption_layers), settings.shifted_words
                ),
            }
        )
        if settings.loss == "pooling":
            net["image_pools"] = Pools(settings.pools, settings.dim)
            net["caption_pools"] = Pools(settings.pools, settings.dim)
        return net

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        v, cells = net["image"].nodes(batch.images)  # type: ignore[operator]
        u, words = net["caption"].nodes(batch.captions)  # type: ignore[operator]
        image_of_caption, margin = batch.image_of_caption, settings.margin
        scores = cosine(pooled(v, cells, settings.pooling), pooled(u, words, settings.pooling))
        if epoch < settings.mean_hinge_epochs:
            return mean_of_hinges(scores, image_of_caption, margin)
        if settings.loss == "pooling":
            pools = net["image_pools"](v, cells), net["caption_pools"](u, words)
            pool_scores = torch.einsum("ipd,cpd->pic", *pools)
            return pooling_loss(
                scores,
                pool_scores,
                image_of_caption,
                margin,
                settings.node_margin,
                settings.pooling_weight,
            )
        if settings.loss == "cross-attention":
            u = u * words[:, :, None]
            return cross_attention_loss(
                scores,
                v,
                u,
                image_of_caption,
                margin,
                settings.node_margin,
                settings.cross_attention_weight,
            )
        return max_of_hinges(scores, image_of_caption, margin)

    return TrainingTask(
        similarity="cosine",
        build=build,
        loss=loss,
        batches=lambda image_of_caption, rng: shuffled_captions(
            image_of_caption, settings.batch_size, rng
        ),
        optimiser=lambda net: torch.optim.Adam(net.parameters(), settings.learning_rate),
        rate=milestones(
            dict(zip((e - 1 for e in settings.lr_milestones), (0.5, 0.1), strict=True))
        ),
        epochs=settings.epochs,
        require=require_two_images,
    )


HEAD = network_kind(RelationalSettings, task)
