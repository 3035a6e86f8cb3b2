"""The training task of a language model, for the loop of `pipeline.heads.training`.

A pair is a condition and a sentence: `Pairs.images` are conditions, `Pairs.captions` token ids
followed by tags, as joined by `pipeline.language.data`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pipeline.heads.inputs.batches import Batch, shuffled_captions
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.layers.scaling import Standardised
from pipeline.heads.training.task import TrainingTask, overall, plateau
from pipeline.language import LanguageError
from pipeline.language.architectures.attention_decoder import AttentionDecoder
from pipeline.language.architectures.context_model import ContextModel, TensorModel
from pipeline.language.architectures.lstm_decoder import LstmDecoder
from pipeline.language.layers.contexts import Factored, LogBilinear
from pipeline.language.layers.gates import ContentGate, StructureGate
from pipeline.language.model_types import LanguageSettings
from pipeline.text.encoders.token_ids import PADDING

SENTENCE = "sentence"
"""Name of the language model in the task's modules."""

_BLOCK = 256

_DECODERS: dict[str, type[LstmDecoder] | type[AttentionDecoder]] = {
    "lstm-decoder": LstmDecoder,
    "attention-decoder": AttentionDecoder,
}


@dataclass(frozen=True)
class Sizes:
    """Input sizes of a language model."""

    vocab_size: int  # number of token ids
    length: int  # of token ids in a row, before the tags
    num_tags: int  # number of tag ids; 0: no tags
    condition_dim: int  # of a condition, or of each of its cells


def build_model(
    model: str, s: LanguageSettings, sizes: Sizes
) -> ContextModel | LstmDecoder | AttentionDecoder:
    """Return an untrained model of `MODELS`, initialised from torch's global generator."""
    condition = sizes.condition_dim
    if model in _DECODERS:
        scaled = Standardised(condition)
        return _DECODERS[model](sizes.vocab_size, scaled, condition, s.word_dim, s.dim, s.dropout)
    if model == "lbl":
        return ContextModel(LogBilinear(sizes.vocab_size, s.dim, s.context), dropout=s.dropout)
    if model == "additive-lbl":
        shift = ContentGate(condition, s.dim, shift=True)
        words = LogBilinear(sizes.vocab_size, s.dim, s.context)
        return ContextModel(words, shift, condition, s.dropout)
    if model == "tensor-lbl":
        return TensorModel(sizes.vocab_size, s.dim, s.context, condition, s.dropout)
    gate: ContentGate | StructureGate
    if model == "sc-nlm":
        gate = StructureGate(sizes.num_tags, condition, s.dim, s.factors, s.forward)
    else:
        gate = ContentGate(condition, s.factors)
    context = Factored(sizes.vocab_size, s.dim, s.factors, s.context)
    return ContextModel(context, gate, condition, s.dropout)


def language_task(model: str, s: LanguageSettings, sizes: Sizes) -> TrainingTask:
    """Return the training task: minimise the mean of -log P(word), select by perplexity."""
    if model == "tensor-lbl" and s.sampled_words:
        raise LanguageError(
            f"tensor-lbl compares a target with all words, but sampled_words is {s.sampled_words}; "
            "set it to 0"
        )

    def build(words: Features | None) -> nn.ModuleDict:
        return nn.ModuleDict({SENTENCE: build_model(model, s, sizes)})

    def loss(net: nn.ModuleDict, batch: Batch, epoch: int, generator: torch.Generator) -> Tensor:
        module: Any = net[SENTENCE]
        conditions = batch.images[batch.image_of_caption]
        if s.content_noise:
            # Images are not at the same points as their sentences: the model must not rely on the
            # exact direction. A vector of `dim` unit normals has a norm of about sqrt(dim).
            noise = torch.randn_like(conditions) * (s.content_noise / sizes.condition_dim**0.5)
            conditions = normalize(conditions + noise)
        sentences, conditions, tags = _sentences(batch.captions, sizes, conditions)
        penalty: Tensor | float = 0.0
        if model == "attention-decoder":
            vectors, targets, attention = module.attended(sentences, conditions)
            # Per word, like the loss; Xu et al. 2015, eq. (14), sums both.
            penalty = s.attention_penalty * (1 - attention).square().sum() / len(targets)
        else:
            vectors, targets = module.vectors(sentences, conditions, tags)
        if s.sampled_words:
            output: Tensor = module.output.sampled_loss(
                vectors, module.words, targets, s.sampled_words, generator
            )
        else:
            output = module.output.loss(vectors, module.words, targets)
        return output + penalty

    def optimiser(net: nn.ModuleDict) -> torch.optim.Optimizer:
        if s.optimiser == "adam":
            return torch.optim.AdamW(
                net.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay
            )
        return torch.optim.SGD(
            net.parameters(), s.learning_rate, s.momentum, weight_decay=s.weight_decay
        )

    def prepare(net: nn.ModuleDict, train: Pairs) -> None:
        module: Any = net[SENTENCE]
        module.scaled.fit(train.images)

    return TrainingTask(
        similarity="cosine",
        build=build,
        loss=loss,
        batches=lambda image_of_caption, rng: shuffled_captions(
            image_of_caption, s.batch_size, rng
        ),
        optimiser=optimiser,
        rate=plateau(s.lr_decay, 1),
        epochs=s.epochs,
        clip=overall(s.clip) if s.clip else None,
        patience=s.patience,
        prepare=prepare if model in _DECODERS else None,
        figures=lambda net, pairs, device: perplexity(net[SENTENCE], pairs, sizes, device),
        score="log_likelihood",
    )


@torch.inference_mode()
def perplexity(model: Any, pairs: Pairs, sizes: Sizes, device: torch.device) -> dict[str, float]:
    """Return `perplexity` and `log_likelihood`, the mean log P(word) in nats, with end marks."""
    total, number = 0.0, 0
    for start in range(0, len(pairs.captions), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(pairs.captions)))
        conditions = torch.from_numpy(pairs.images.take(pairs.image_of_caption[rows])).to(device)
        captions = torch.from_numpy(pairs.captions.take(rows)).to(device)
        vectors, targets = model.vectors(*_sentences(captions, sizes, conditions))
        total += float(model.output.loss(vectors, model.words, targets).double()) * len(targets)
        number += len(targets)
    return {"perplexity": math.exp(total / number), "log_likelihood": -total / number}


def _sentences(
    captions: Tensor, sizes: Sizes, conditions: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return token ids, conditions and tags of a batch, without padding common to all rows."""
    ids = captions.long()
    sentences = ids[:, : sizes.length]
    longest = int((sentences != PADDING).sum(dim=1).max())
    tags = ids[:, sizes.length :][:, : longest - 1] if sizes.num_tags else None
    return sentences[:, :longest], conditions, tags
