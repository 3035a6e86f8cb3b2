"""Sentence towers that read words in order: word table, recurrent network, pooled states."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.layers.recurrence import (
    last_rows,
    lstm_states,
    lstm_states_of_whole_peepholes,
    run_recurrent,
)
from pipeline.text.encoders.token_ids import PADDING

RANDOM_WORD = 0.1
"""Words without a vector start uniform in plus or minus this, as all words of VSE++ do."""

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
"""Torch's recurrent networks; those of `PEEPHOLE_CELLS` are a `PeepholeLSTM`."""

PEEPHOLE_CELLS = ("peephole_lstm", "whole_peephole_lstm")

_PEEPHOLE_START = 0.08  # Kiros et al. 2014, section 3.1; torch's own is 1 / sqrt(hidden)


def word_table(vocab_size: int, dim: int, words: Features | None, trained: bool) -> nn.Embedding:
    """Return a table of word vectors, drawn from torch's global generator where none is given.

    Padding is zero and stays so. The unknown word and the marks are rows as any other.

    Parameters
    ----------
    vocab_size, dim : its shape.
    words : (vocab_size, dim) float32, rows of NaN where a word has no vector; None has none at all.
    trained : whether the rows are parameters; otherwise all are fixed, the random ones too.

    Raises
    ------
    HeadError
        The vectors have another shape, or are neither finite nor NaN.
    """
    rows = torch.empty(vocab_size, dim).uniform_(-RANDOM_WORD, RANDOM_WORD)
    if words is not None:
        if words.shape != (vocab_size, dim):
            raise HeadError(
                f"the word vectors are of shape {words.shape}, but the head's word table is of "
                f"shape {(vocab_size, dim)}; set word_dim to the length of the vectors, and take "
                "vectors for the vocabulary that the captions were made with"
            )
        known = ~np.isnan(words).all(axis=1)
        if not np.isfinite(words[known]).all():
            raise HeadError(
                "word vectors hold NaN or infinite numbers within a row; a row is either finite "
                "or all NaN, for a word without a vector; read the vectors again from a sound file"
            )
        rows[torch.from_numpy(known)] = torch.from_numpy(words[known])
    rows[PADDING] = 0.0
    return nn.Embedding.from_pretrained(rows, freeze=not trained, padding_idx=PADDING)


def packed(ids: Tensor) -> tuple[PackedSequence, Tensor]:
    """Pack captions so that no padding is computed with, wherever it stands.

    Parameters
    ----------
    ids : (captions, length) token ids of any dtype; `PADDING` in front or at the back.

    Returns
    -------
    packed : of int64 numbers, each caption's words in order. One without words has one `PADDING`.
    lengths : (captions,) int64 words of each caption, 0 or more.
    """
    ids = ids.long()
    padding = ids == PADDING
    lengths = ids.shape[1] - padding.sum(dim=1)
    longest = max(int(lengths.max()), 1)
    # Stable, so that words keep their order: it moves padding to the back.
    order = padding.to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
    return (
        pack_padded_sequence(
            ids.gather(1, order), lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False
        ),
        lengths,
    )


class PeepholeLSTM(nn.Module):
    """The LSTM of Kiros et al. 2014, whose gates see the cell: one layer, one direction.

    Eq. (1) to (5): the input and forget gates see the cell before the step, the output gate sees it
    afterwards. Weights and biases start uniform in plus or minus 0.08.

    The paper prints whole matrices from the cell to the gates (`whole`). Without them a gate sees
    its own number of the cell, as in Graves 2013, whose equations they are.
    """

    bidirectional = False

    def __init__(self, inputs: int, hidden: int, whole: bool = False) -> None:
        """Take the lengths of a word and of the state, and whether peepholes are matrices."""
        super().__init__()
        self.word = nn.Linear(inputs, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.peepholes = nn.Parameter(torch.empty((3, hidden, hidden) if whole else (3, hidden)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_PEEPHOLE_START, _PEEPHOLE_START)

    def forward(self, sequence: PackedSequence) -> tuple[PackedSequence, Tensor]:
        """Return the states of a batch and the last of each caption, as `torch.nn.GRU` does.

        Returns
        -------
        states : packed as `sequence` is.
        last : (1, captions, hidden), in the order of the batch before it was packed.
        """
        steps = lstm_states if self.peepholes.ndim == 2 else lstm_states_of_whole_peepholes
        states = steps(
            sequence.data,
            sequence.batch_sizes.tolist(),
            self.word.weight,
            self.state.weight,
            self.word.bias,
            peepholes=self.peepholes,
        )
        last = states[last_rows(sequence)]
        return sequence._replace(data=states), last[None]


class SentenceTower(nn.Module):
    """Token ids to one vector a caption.

    The recurrent network reads packed sequences, so that no padding is computed with.
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
        """Weights of the recurrent network's own initialisation, from torch's global generator.

        Parameters
        ----------
        words : see `word_table`.
        dim : length of the result; where bidirectional it is even, half from each direction.
        cell : of the recurrent network: "gru", "lstm", or "peephole_lstm" and
            "whole_peephole_lstm", which have one layer and one direction.
        layers : stacked, at least 1.
        bidirectional : whether a second network reads from the end. Results are concatenated.
        pooling : how the top layer's states become one vector: "last", "mean" or "max". The last
            state of the second network is the one that has read the first word.
        """
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
        """Return (captions, dim) of (captions, length); a caption without words is zero."""
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
            pooled = pad_packed_sequence(states, padding_value=-torch.inf)[0].amax(dim=0)
        else:
            pooled = pad_packed_sequence(states)[0].sum(dim=0) / lengths.clamp_min(1)[:, None]
        return torch.where(lengths[:, None] > 0, pooled, 0.0)


class WordSum(nn.Module):
    """Token ids to the sum of the words' vectors, whatever their order."""

    def __init__(self, words: nn.Embedding) -> None:
        """Take the word table; see `word_table`."""
        super().__init__()
        self.words = words

    def forward(self, ids: Tensor) -> Tensor:
        """Return (captions, word_dim) of (captions, length); padding adds its zero row."""
        return self.words(ids.long()).sum(dim=1)
