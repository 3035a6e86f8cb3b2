"""Sentence towers over word sequences: word table, recurrent network, pooled states."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.layers.padded import Padded
from pipeline.heads.layers.recurrence import (
    last_rows,
    lstm_states,
    pack,
    plain_lstm_states,
    run_recurrent,
    unpack,
    words_first,
)
from pipeline.text.encoders.token_ids import PADDING

RANDOM_WORD = 0.1
"""Range of the uniform initialisation of words without a vector, as for all words of VSE++."""

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
"""Torch's recurrent networks; the cells in `PEEPHOLE_CELLS` use `PeepholeLSTM`."""

PEEPHOLE_CELLS = ("peephole_lstm", "whole_peephole_lstm")

_PEEPHOLE_START = 0.08  # Kiros et al. 2014, section 3.1; torch's own is 1 / sqrt(hidden)


def word_table(vocab_size: int, dim: int, words: Features | None, trained: bool) -> nn.Embedding:
    """Return a table of word vectors; NaN rows of `words` are drawn from torch's global generator.

    The padding row is zero; all rows, also of marks and of the unknown word, are trained, or none.
    """
    rows = torch.empty(vocab_size, dim).uniform_(-RANDOM_WORD, RANDOM_WORD)
    if words is not None:
        if words.shape != (vocab_size, dim):
            raise HeadError(
                f"word vectors have shape {words.shape}, but the head's word table has shape "
                f"{(vocab_size, dim)}; set word_dim to the dimension of the vectors, and use the "
                "vocabulary of the caption features"
            )
        has_vector = ~np.isnan(words).all(axis=1)
        if not np.isfinite(words[has_vector]).all():
            raise HeadError(
                "word vectors contain NaN or infinite values within a row; a row is either finite "
                "or all NaN, for a word without a vector; load the vectors from a valid file"
            )
        rows[torch.from_numpy(has_vector)] = torch.from_numpy(words[has_vector])
    rows[PADDING] = 0.0
    return nn.Embedding.from_pretrained(rows, freeze=not trained, padding_idx=PADDING)


def packed(ids: Tensor) -> tuple[PackedSequence, Tensor]:
    """Return packed token ids (captions, length), padding anywhere, and word counts (captions,)."""
    ids = ids.long()
    padding = ids == PADDING
    lengths = ids.shape[1] - padding.sum(dim=1)
    return pack(ids.gather(1, words_first(padding)), lengths), lengths


class PeepholeLSTM(nn.Module):
    """The LSTM of Kiros et al. 2014 with peephole connections: one layer, one direction.

    Equivalent to `nn.LSTM`, but the gates also depend on the cell, eq. (1) to (5): the input and
    forget gates on the cell before the step, the output gate on the cell after it. Weights and
    biases start uniform in (-0.08, 0.08). The paper prints full peephole matrices (`whole`); the
    default is diagonal, as in Graves 2013, whose equations they are.
    """

    bidirectional = False

    def __init__(self, inputs: int, hidden: int, whole: bool = False) -> None:
        super().__init__()
        self.word = nn.Linear(inputs, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.peepholes = nn.Parameter(torch.empty((3, hidden, hidden) if whole else (3, hidden)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_PEEPHOLE_START, _PEEPHOLE_START)

    def forward(self, sequence: PackedSequence) -> tuple[PackedSequence, Tensor]:
        """Return all states, packed, and the last of each caption, (1, captions, hidden)."""
        weights = self.word.weight, self.state.weight, self.word.bias
        if isinstance(sequence, Padded):
            steps, captions, _ = sequence.data.shape
            rows, sizes = sequence.data.flatten(0, 1), [captions] * steps
            states = plain_lstm_states(rows, sizes, *weights, peepholes=self.peepholes)
            padded = sequence._replace(data=states.unflatten(0, (steps, captions)))
            return padded, padded.last()[None]
        states_of = lstm_states if self.peepholes.ndim == 2 else plain_lstm_states
        sizes = sequence.batch_sizes.tolist()
        states = states_of(sequence.data, sizes, *weights, peepholes=self.peepholes)
        last = states[last_rows(sequence)]
        return sequence._replace(data=states), last[None]


class SentenceTower(nn.Module):
    """Sentence encoder: token ids to one vector per caption, without computing padding.

    Parameters
    ----------
    words : nn.Embedding. See `word_table`.
    dim : int. Dimension of the result; if bidirectional, half per direction, concatenated.
    cell : str. "gru", "lstm", or "peephole_lstm" and "whole_peephole_lstm", which have one
        layer and one direction.
    layers, bidirectional : int and bool. Number of stacked layers and directions.
    pooling : str. Pooling of the top layer's states: "last", "mean" or "max". The last state of
        the backward network is the one after the first word.
    """

    def __init__(
        self,
        words: nn.Embedding,
        dim: int,
        cell: str,
        layers: int,
        bidirectional: bool,
        pooling: str,
    ) -> None:
        super().__init__()
        self.words = words
        self.pooling = pooling
        self.rnn: PeepholeLSTM | nn.GRU | nn.LSTM
        if cell in PEEPHOLE_CELLS:
            self.rnn = PeepholeLSTM(words.embedding_dim, dim, whole=cell == "whole_peephole_lstm")
        else:
            self.rnn = CELLS[cell](
                words.embedding_dim,
                dim // 2 if bidirectional else dim,
                layers,
                bidirectional=bidirectional,
            )

    def forward(self, ids: Tensor) -> Tensor:
        """Return (captions, dim) of ids (captions, length); a caption without words is zero."""
        sequence, lengths = packed(ids)
        sequence = sequence._replace(data=self.words(sequence.data))
        if isinstance(self.rnn, PeepholeLSTM):
            states, last = self.rnn(sequence)
        else:
            states, last = run_recurrent(self.rnn, sequence)
        if self.pooling == "last":
            ways = 2 if self.rnn.bidirectional else 1
            pooled = torch.cat(tuple(last[-ways:]), dim=1)
        elif self.pooling == "max":
            pooled = unpack(states, fill=-torch.inf).amax(dim=0)
        else:
            pooled = unpack(states).sum(dim=0) / lengths.clamp_min(1)[:, None]
        return torch.where(lengths[:, None] > 0, pooled, 0.0)


class WordSum(nn.Module):
    """Sum of word vectors over token ids, independent of word order.

    Equivalent to `nn.EmbeddingBag` in the mode "sum", but on a shared word table.
    """

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        self.words = words

    def forward(self, ids: Tensor) -> Tensor:
        """Return (captions, word_dim) of ids (captions, length); padding adds zero."""
        return self.words(ids.long()).sum(dim=1)
