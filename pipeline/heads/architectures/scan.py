"""SCAN: image cells and words in one embedding space, compared by stacked cross attention.

Grid cells replace detected regions, as in the baseline of Yan 2019. Deviation: two captions of one
image in a batch are not negatives of each other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads.base import choice, epoch_selection, setting
from pipeline.heads.inputs.batches import Batch, require_two_images, shuffled_captions
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import HeadInputs, require_grid, require_sequence
from pipeline.heads.layers.recurrence import run_recurrent, unpack
from pipeline.heads.layers.rnn import packed, word_table
from pipeline.heads.losses.ranking import max_of_hinges, mean_of_hinges
from pipeline.heads.training.task import TrainingTask, overall, steps
from pipeline.heads.training.trainer import network_kind
from pipeline.retrieval.torch_scores import SCORES
from pipeline.text.encoders.token_ids import PADDING


@dataclass(frozen=True)
class ScanSettings:
    """Settings; the defaults are those of the published program for Flickr30K."""

    # "t2i": words attend to cells; "i2t": cells to words.
    similarity: str = choice("scan-t2i-avg", "scan-t2i-lse", "scan-i2t-avg", "scan-i2t-lse")
    dim: int = setting(1024, at_least=1)
    word_dim: int = setting(300, at_least=1)
    margin: float = setting(0.2)  # of the hinge loss
    mean_hinge_epochs: int = setting(0)  # initial epochs with `mean_of_hinges`; 0 as published
    epochs: int = setting(30, at_least=1)
    batch_size: int = setting(128, at_least=2)  # pairs
    learning_rate: float = setting(2e-4)  # of Adam
    lr_decay_every: int = setting(15, at_least=1)  # epochs until the rate is divided by 10
    clip: float = setting(2.0)  # maximum norm of all gradients together; 0: no clipping
    selection: str = epoch_selection()


class Cells(nn.Module):
    """Image side: a linear map of each cell, L2-normalised."""

    def __init__(self, channels: int, dim: int) -> None:
        """Initialise weights Xavier-uniform and biases zero, as published."""
        super().__init__()
        self.project = nn.Linear(channels, dim)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, grids: Tensor) -> Tensor:
        """Return (n, cells, dim) unit vectors of grids (n, ..., channels)."""
        return F.normalize(self.project(grids.flatten(1, -2)), dim=2)


class Words(nn.Module):
    """Caption side: the mean of both directions of a GRU (`dim` units each), L2-normalised."""

    def __init__(self, words: nn.Embedding, dim: int) -> None:
        super().__init__()
        self.words = words
        self.gru = nn.GRU(words.embedding_dim, dim, bidirectional=True)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (n, length, dim) unit vectors of token ids (n, length), words in front."""
        sequence, lengths = packed(rows)
        words = sequence._replace(data=self.words(sequence.data))
        states, _ = run_recurrent(self.gru, words)
        both = unpack(states, batch_first=True, length=rows.shape[1])
        forwards, backwards = both.chunk(2, dim=2)
        present = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
        return F.normalize((forwards + backwards) / 2, dim=2) * present[:, :, None]


def task(settings: ScanSettings, inputs: HeadInputs) -> TrainingTask:
    """Return the training task of SCAN: sets of unit vectors, compared by cross attention.

    A cell is a linear map of its features, a word the mean of both directions of a GRU. The loss is
    `pipeline.heads.losses.ranking.max_of_hinges` of `pipeline.retrieval.torch_scores`.

    Source: Lee, Chen, Hua, Hu & He 2018, "Stacked Cross Attention for Image-Text Matching".
    Inputs: images (n, *cells, channels), captions (m, length) token ids.
    Relations: as VSE++ (`pipeline.heads.architectures.vse`), but with a vector for each cell and
        word, so that embeddings are (n, cells, dim) and (m, length, dim).
    """
    _, channels = require_grid("scan", inputs.images)
    sequence = require_sequence("scan", inputs.captions)
    score = SCORES[settings.similarity]

    def build(words: Features | None) -> nn.ModuleDict:
        table = word_table(sequence.vocab_size, settings.word_dim, words, trained=True)
        return nn.ModuleDict(
            {
                "image": Cells(channels, settings.dim),
                "caption": Words(table, settings.dim),
            }
        )

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        longest = int((batch.captions != PADDING).sum(dim=1).max())
        captions = net["caption"](batch.captions)[:, : max(longest, 1)]
        scores = score(net["image"](batch.images), captions)
        chosen = mean_of_hinges if epoch < settings.mean_hinge_epochs else max_of_hinges
        return chosen(scores, batch.image_of_caption, settings.margin)

    return TrainingTask(
        similarity=settings.similarity,
        build=build,
        loss=loss,
        batches=lambda image_of_caption, rng: shuffled_captions(
            image_of_caption, settings.batch_size, rng
        ),
        optimiser=lambda net: torch.optim.Adam(net.parameters(), settings.learning_rate),
        rate=steps(settings.lr_decay_every, 0.1),
        epochs=settings.epochs,
        clip=overall(settings.clip) if settings.clip else None,
        require=require_two_images,
    )


HEAD = network_kind(ScanSettings, task)
