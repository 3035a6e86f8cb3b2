"""Joint embeddings: a linear map of the image and a recurrent network over the caption's words.

Deviations: the image map has a bias; it starts Xavier-uniform with zero bias, as in VSE++; GRU and
LSTM start with torch's initial weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from pipeline.heads import HeadError
from pipeline.heads.base import choice, epoch_selection, numbers, setting
from pipeline.heads.inputs.batches import (
    Batch,
    captions_with_drawn,
    one_caption_each,
    require_two_images,
    shuffled_captions,
)
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import (
    FeatureSpec,
    HeadInputs,
    caption_blocks,
    require_sequence,
    require_vectors,
)
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.layers.rnn import PEEPHOLE_CELLS, SentenceTower, WordSum, word_table
from pipeline.heads.layers.scaling import Standardised, UnitLength
from pipeline.heads.losses.ranking import (
    contrast_with_drawn,
    info_nce,
    max_of_hinges,
    mean_of_hinges,
    over_prefixes,
    require_prefixes,
    sampled_contrast,
    sum_of_hinges,
)
from pipeline.heads.training.task import Loss, TrainingTask, overall, per_tensor, steps
from pipeline.heads.training.trainer import network_kind
from pipeline.retrieval.torch_scores import SCORES


@dataclass(frozen=True)
class VseSettings:
    """Settings; the defaults are those of Qian & Lamberti 2018."""

    # "peephole_lstm" is that of Kiros et al. 2014 with diagonal peepholes, "whole_peephole_lstm"
    # with full matrices, as printed. "none" sums the word vectors, or maps captions that are
    # vectors, such as word counts, linearly, and ignores `layers` and `bidirectional`.
    cell: str = choice("gru", "lstm", "peephole_lstm", "whole_peephole_lstm", "none")
    layers: int = setting(1, at_least=1)
    bidirectional: bool = setting(False)  # two directions of `dim` / 2 units each
    pooling: str = choice("last", "mean", "max")  # of the states; "last" as in the papers
    word_dim: int = setting(300, at_least=1)
    train_words: bool = setting(True)
    dim: int = setting(1024, at_least=1)  # of the embedding space
    # "given": unchanged; "unit": L2-normalised; "standardised": by the mean vector and one scale
    # of the training images.
    image_scaling: str = choice("given", "unit", "standardised")
    # With "captions" and cosine similarity, training uses the inner product.
    l2_normalise: str = choice("neither", "both", "captions")
    absolute: bool = setting(False)  # both sides end with an element-wise absolute value
    # In training and retrieval; a Euclidean distance depends on the norm of image features.
    similarity: str = choice("euclidean", "cosine", "order")
    # `pipeline.heads.losses.ranking`: hinges over all negatives in the batch, over the hardest,
    # over `negatives` random ones per side, over as many from the whole training set, or InfoNCE.
    loss: str = choice(
        "sum_of_hinges", "max_of_hinges", "sampled_contrast", "training_contrast", "info_nce"
    )
    negatives: int = setting(10, at_least=1)  # per side, in the two contrast losses
    margin: float = setting(0.1)  # of the hinge losses
    temperature: float = setting(0.05, at_least=0.001)  # of "info_nce"
    mean_hinge_epochs: int = setting(0)  # initial epochs with `mean_of_hinges`; 0 as published
    # Prefix lengths, trained as embeddings of their own.
    matryoshka: tuple[int, ...] = numbers(int, at_least=1)
    # Relative to 1 for the whole vectors; empty: 1 each.
    matryoshka_weights: tuple[float, ...] = numbers(float)
    # One pass over captions, or over images with a random one.
    epoch: str = choice("captions", "images")
    batch_size: int = setting(128, at_least=2)  # captions, or images with one caption each
    optimiser: str = choice("adam", "sgd")  # "sgd" has no momentum
    learning_rate: float = setting(0.001)
    lr_decay: float = setting(1.0)  # factor, every `lr_decay_every` epochs
    lr_decay_every: int = setting(1, at_least=1)
    clip: float = setting(0.0)  # maximum gradient norm; 0: no clipping
    clip_each: bool = setting(False)  # `clip` limits each tensor's norm, not that of all together
    epochs: int = setting(50, at_least=1)  # at most
    patience: int = setting(10)  # stops after `patience` + 1 epochs without improvement
    selection: str = epoch_selection()


class Absolute(nn.Module):
    """Element-wise absolute value."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


def task(settings: VseSettings, inputs: HeadInputs) -> TrainingTask:
    """Return the training task of a joint embedding: one vector per image and per caption.

    Source: one family of published systems that differ in their settings, see
        `pipeline.heads.presets`: Qian & Lamberti 2018, whose GRU is the default; order-embeddings
        (Vendrov et al. 2016); VSE++ and VSE0 (Faghri et al. 2018); Kiros et al. 2014 with an LSTM,
        with a sum of word vectors, and as in their later program.
    Inputs: images (n, d), captions (m, length) token ids; with the cell "none", captions may be
        vectors (m, e).
    Relations: `scan` has a vector for each cell and word in place of one per row; with the cell
        "none", a linear head as `cca` is, but trained.
    """
    s = settings
    image_dim = require_vectors("vse", inputs.images)
    require_prefixes("vse", s.matryoshka, s.matryoshka_weights, s.dim, s.similarity)
    captions = _caption_tower(s, inputs.captions)

    def build(words: Features | None) -> nn.ModuleDict:
        # The identity until `prepare`, which only image_scaling "standardised" calls.
        given = Standardised(image_dim, *[UnitLength()] * (s.image_scaling == "unit"))
        image = _linear(image_dim, s.dim, bias=True)
        return nn.ModuleDict(
            {
                "image": nn.Sequential(given, image, *_ending(s, s.l2_normalise == "both")),
                "caption": nn.Sequential(captions(words), *_ending(s, s.l2_normalise != "neither")),
            }
        )

    batches = shuffled_captions if s.epoch == "captions" else one_caption_each
    if s.loss == "training_contrast":
        if s.epoch != "captions":
            raise HeadError(
                "the loss training_contrast needs epochs over captions; set epoch to captions, "
                "or loss to sampled_contrast"
            )
        batches = partial(captions_with_drawn, k=s.negatives)
    clip = per_tensor if s.clip_each else overall
    return TrainingTask(
        similarity=s.similarity,
        build=build,
        loss=_loss(s),
        batches=lambda image_of_caption, rng: batches(image_of_caption, s.batch_size, rng=rng),
        optimiser=partial(_optimiser, s),
        rate=steps(s.lr_decay_every, s.lr_decay),
        epochs=s.epochs,
        clip=clip(s.clip) if s.clip else None,
        patience=s.patience,
        require=require_two_images,
        prepare=_standardise if s.image_scaling == "standardised" else None,
    )


def _caption_tower(s: VseSettings, captions: FeatureSpec) -> Callable[..., nn.Module]:
    """Return the function from word vectors (or None) to the caption tower without `_ending`."""
    if s.cell == "none" and all(part.kind != "sequence" for part in caption_blocks(captions)):
        dim = require_vectors("vse", captions)
        return lambda words: _linear(dim, s.dim, bias=False)
    vocab_size = require_sequence("vse", captions).vocab_size
    if s.cell == "none":
        if s.word_dim != s.dim:
            raise HeadError(
                f"with cell none, the word vectors are summed in the embedding space, but word_dim "
                f"is {s.word_dim} and dim is {s.dim}; set both to one value, or choose a cell"
            )
        return lambda words: WordSum(word_table(vocab_size, s.word_dim, words, s.train_words))
    if s.cell in PEEPHOLE_CELLS and (s.bidirectional or s.layers > 1):
        raise HeadError(
            f"a peephole LSTM has one layer and one direction, but layers is {s.layers} and "
            f"bidirectional is {s.bidirectional}; use the cell lstm for more"
        )
    if s.bidirectional and s.dim % 2:
        raise HeadError(
            f"a bidirectional network needs an even dim, found {s.dim}; set an even number"
        )
    return lambda words: SentenceTower(
        word_table(vocab_size, s.word_dim, words, s.train_words),
        s.dim,
        s.cell,
        s.layers,
        s.bidirectional,
        s.pooling,
    )


def _ending(s: VseSettings, unit: bool) -> list[nn.Module]:
    return [UnitLength()] * unit + [Absolute()] * s.absolute


def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def _loss(s: VseSettings) -> Loss:
    inner_product = s.similarity == "cosine" and s.l2_normalise == "captions"
    score = SCORES["dot" if inner_product else s.similarity]

    def of_scores(scores: Tensor, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        if s.loss == "sampled_contrast":
            return sampled_contrast(
                scores, batch.image_of_caption, s.margin, s.negatives, generator
            )
        if s.loss == "training_contrast":
            return contrast_with_drawn(scores, batch.image_of_caption, s.margin, s.negatives)
        if s.loss == "info_nce":
            return info_nce(scores, batch.image_of_caption, s.temperature)
        if s.loss == "sum_of_hinges":
            return sum_of_hinges(scores, batch.image_of_caption, s.margin)
        hinges = mean_of_hinges if epoch < s.mean_hinge_epochs else max_of_hinges
        return hinges(scores, batch.image_of_caption, s.margin)

    def loss(towers: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        return over_prefixes(
            lambda images, captions: of_scores(score(images, captions), batch, epoch, generator),
            towers["image"](batch.images),
            towers["caption"](batch.captions),
            s.matryoshka,
            s.matryoshka_weights,
        )

    return loss


def _optimiser(s: VseSettings, towers: nn.ModuleDict) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if s.optimiser == "adam" else torch.optim.SGD
    return kind([p for p in towers.parameters() if p.requires_grad], lr=s.learning_rate)


def _standardise(towers: nn.ModuleDict, train: Pairs) -> None:
    towers["image"][0].fit(train.images)  # type: ignore[index]


HEAD = network_kind(VseSettings, task)
