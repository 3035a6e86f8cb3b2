"""Word2VisualVec: embeds a caption as the visual feature that it predicts for its image.

Deviations from Dong et al. 2018 and its published program:

- the GRU skips padding. The program pads in front without a mask, so that the padded length
  changes every caption's vector, and most steps process padding;
- torch's GRU applies the reset gate after the recurrent product and has no dropout on its state
  (0.2 in the program); dropout on word vectors is the same;
- learning rate and early stopping follow the program. The paper halves the rate after three
  consecutive epochs without improvement, and stops after ten: `halve_after_consecutive` and
  `patience` 9;
- the epoch is selected by validation rsum by default; `selection: map` is that of the program.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.heads.base import choice, epoch_selection, setting
from pipeline.heads.inputs.batches import Batch, random_images, require_two_images
from pipeline.heads.inputs.feature_rows import Features, in_blocks
from pipeline.heads.inputs.feature_spec import (
    CaptionBlock,
    HeadInputs,
    caption_blocks,
    require_vectors,
)
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.layers.recurrence import run_recurrent
from pipeline.heads.layers.rnn import RANDOM_WORD, packed, word_table
from pipeline.heads.losses.ranking import sum_of_hinges
from pipeline.heads.training.task import Loss, TrainingTask, per_tensor, plateau
from pipeline.heads.training.trainer import network_kind
from pipeline.retrieval.torch_scores import SCORES

_RANDOM_WORD = 1.0  # words without a vector start uniform in (-1, 1)


@dataclass(frozen=True)
class Word2VisualVecSettings:
    """Settings of section III, or of the program where the paper is silent."""

    # Of the perceptron, with its input: 500-2048-2048 has three.
    layers: int = setting(3, at_least=2, below=5)
    # Dimension of hidden layers; the last has that of the feature.
    hidden: int = setting(2048, at_least=1)
    word_dim: int = setting(500, at_least=1)  # of the GRU's word vectors
    hidden_size: int = setting(1024, at_least=1)  # units of the GRU
    dropout: float = setting(0.2, below=1)  # on the GRU's words and after each hidden layer
    epochs: int = setting(100, at_least=1)  # at most, of ceil(captions / batch_size) batches
    batch_size: int = setting(100, at_least=1)  # distinct images, with one random caption each
    learning_rate: float = setting(1e-4)  # of RMSprop
    rmsprop_alpha: float = setting(0.9, below=1)  # smooths the mean square
    epsilon: float = setting(1e-6)
    clip: float = setting(5.0)  # maximum norm of each gradient tensor; 0: no clipping
    # As in torch: weight_decay * w is added to the clipped gradients, biases and word vectors
    # included. In the loss this is weight_decay / 2 |w|^2; Keras's l2 has no half.
    weight_decay: float = setting(0.0)
    # Eq. (8), or the marginal ranking loss that section III-B reports as worse.
    loss: str = choice("squared_error", "sum_of_hinges")
    margin: float = setting(0.2)  # of "sum_of_hinges"
    # In retrieval and in the ranking loss; section III-C reports "dot" and "euclidean" as worse.
    similarity: str = choice("cosine", "dot", "euclidean")
    # Epochs at one rate before one without improvement halves it.
    halve_after: int = setting(3, at_least=1)
    # Counts only consecutive epochs without improvement, as in the paper.
    halve_after_consecutive: bool = setting(False)
    patience: int = setting(10)  # stops after `patience` + 1 epochs without improvement
    selection: str = epoch_selection()


class LastState(nn.Module):
    """Last state of a GRU over token ids, with dropout on word vectors."""

    def __init__(self, words: nn.Embedding, state: int, dropout: float) -> None:
        super().__init__()
        self.words = words
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(words.embedding_dim, state)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (n, state) of token ids (n, length); zero for a caption without words."""
        sequence, lengths = packed(rows)
        words = self.dropout(self.words(sequence.data))
        _, last = run_recurrent(self.gru, sequence._replace(data=words))
        return torch.where(lengths[:, None] > 0, last[0], 0.0)


class SentenceVector(nn.Module):
    """Caption features with each sequence replaced by the last state of a GRU; eq. (4)."""

    def __init__(
        self,
        blocks: tuple[CaptionBlock, ...],
        settings: Word2VisualVecSettings,
        words: Features | None,
    ) -> None:
        super().__init__()
        self.columns = [block.columns for block in blocks]
        self.encoders = nn.ModuleList()
        self.dim = 0
        for block in blocks:
            if block.kind == "sequence":
                table = words_of(block.vocab_size, settings.word_dim, words)
                self.encoders.append(LastState(table, settings.hidden_size, settings.dropout))
                self.dim += settings.hidden_size
            else:
                self.encoders.append(nn.Identity())
                self.dim += block.dim

    def forward(self, rows: Tensor) -> Tensor:
        """Return (n, dim) of caption features (n, columns)."""
        pairs = zip(self.encoders, self.columns, strict=True)
        return torch.cat([encoder(rows[:, columns]) for encoder, columns in pairs], dim=1)


def words_of(vocab_size: int, dim: int, words: Features | None) -> nn.Embedding:
    """Return a trainable word table; words without a vector start uniform in (-1, 1)."""
    table = word_table(vocab_size, dim, words, trained=True)
    drawn = torch.ones(vocab_size, dtype=torch.bool)
    if words is not None:
        drawn = torch.from_numpy(np.isnan(words).all(axis=1))
    with torch.no_grad():
        table.weight[drawn] *= _RANDOM_WORD / RANDOM_WORD
    return table


def perceptron(inputs: int, hidden: int, outputs: int, layers: int, dropout: float) -> nn.Module:
    """Return alternating linear and ReLU layers, eq. (5) to (7), with dropout in between."""
    sizes = [inputs] + [hidden] * (layers - 2) + [outputs]
    modules: list[nn.Module] = []
    for before, after in pairwise(sizes):
        modules += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*modules[:-1])


def task(settings: Word2VisualVecSettings, inputs: HeadInputs) -> TrainingTask:
    """Return the training task of Word2VisualVec, compared by cosine.

    Captions pass through a multilayer perceptron from word counts, mean word vectors, the last
    state of a GRU, or a concatenation of these ("multi-scale", eq. 4), trained by `squared_error`
    against the feature of their image. Image features serve as embeddings unchanged.

    Source: Dong, Li & Snoek 2018, sections III and IV-A, and the published program.
    Inputs: images (n, d), at least 0; captions (m, columns), vectors, token ids or a concatenation.
    Relations: as `ridge`, but with a nonlinear map and a trained sentence encoder.
    """
    feature = require_vectors("word2visualvec", inputs.images)
    blocks = caption_blocks(inputs.captions)

    def build(words: Features | None) -> nn.ModuleDict:
        sentence = SentenceVector(blocks, settings, words)
        mlp = perceptron(sentence.dim, settings.hidden, feature, settings.layers, settings.dropout)
        return nn.ModuleDict({"image": nn.Identity(), "caption": nn.Sequential(sentence, mlp)})

    return TrainingTask(
        similarity=settings.similarity,
        build=build,
        loss=squared_error if settings.loss == "squared_error" else _ranking(settings),
        batches=lambda image_of_caption, rng: random_images(
            image_of_caption, settings.batch_size, rng
        ),
        optimiser=lambda net: torch.optim.RMSprop(
            net.parameters(),
            settings.learning_rate,
            settings.rmsprop_alpha,
            settings.epsilon,
            settings.weight_decay,
        ),
        rate=plateau(0.5, settings.halve_after, consecutive=settings.halve_after_consecutive),
        epochs=settings.epochs,
        clip=per_tensor(settings.clip) if settings.clip else None,
        patience=settings.patience,
        require=require_targets,
    )


def squared_error(
    net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator
) -> Tensor:
    """Return the mean squared error of predicted image features, over dimensions and captions.

    Source: Dong, Li & Snoek 2018, eq. (8).
    Inputs: a batch of images (i, d) and captions (c, columns); the module "caption" maps these to
        (c, d).
    Relations: a regression loss; in contrast to the losses of `pipeline.heads.losses.ranking`, it
        compares a caption with its own image only and needs no negatives.
    """
    return F.mse_loss(net["caption"](batch.captions), batch.images[batch.image_of_caption])


def _ranking(settings: Word2VisualVecSettings) -> Loss:
    score = SCORES[settings.similarity]

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        scores = score(batch.images, net["caption"](batch.captions))
        return sum_of_hinges(scores, batch.image_of_caption, settings.margin)

    return loss


def require_targets(train: Pairs) -> None:
    """Raise HeadError for fewer than two images or for a feature below 0, the last ReLU's range."""
    require_two_images(train)
    start = 0
    for features in in_blocks(train.images):
        if (negative := np.flatnonzero((features < 0).any(axis=1))).size:
            row = int(negative[0])
            raise HeadError(
                f"image {train.image_ids[start + row]} has the feature value "
                f"{features[row].min():g}, but word2visualvec predicts values of at least 0 "
                "(its last layer is a ReLU); use features after a ReLU or their mean, such as "
                "vgg19-fc7-10crop or resnet152-pool, not vgg19-fc7pre-10crop"
            )
        start += len(features)


HEAD = network_kind(Word2VisualVecSettings, task)
