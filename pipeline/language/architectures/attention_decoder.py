"""An LSTM decoder with soft attention over the cells of a grid.

Xu et al. 2015 ("Show, attend and tell"), sections 3.1.2 and 4.2: the context of a word is the mean
of the cells, weighted by a softmax of their match with the state, times a gate. Deviation: cells
are standardised first.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from pipeline.heads.layers.rnn import packed
from pipeline.language.layers.output import Output
from pipeline.language.model import State, rows_of_pairs
from pipeline.text.encoders.token_ids import END, PADDING

_WORD_RANGE = 0.1


class AttentionDecoder(nn.Module):
    """LSTM decoder with attention to grid cells; see `pipeline.language.model.SentenceModel`.

    Conditions are grids; tags are not supported.

    Attributes
    ----------
    scaled : nn.Module. Standardisation of cells, fitted on the training split.
    first_state, first_cell : (hidden, condition_dim). Maps from the mean cell to the initial state.
    inputs : (vocab_size, word_dim). E, input word vectors.
    of_word, of_state, of_context : (4 hidden, ...). Gates i, f, g, o of the LSTM, eq. (1).
    cell_keys, state_keys : (hidden, ...). First layer of f_att, eq. (4), followed by tanh.
    fit : (hidden,). Second layer of f_att.
    gate : (1, hidden). Gate beta of the context, section 4.2.1.
    out_state, out_context : (word_dim, ...). L_h and L_z of eq. (7).
    words : (vocab_size, word_dim). L_o, output word vectors.
    output : Output. Output layer.
    """

    takes_tags = False

    def __init__(
        self,
        vocab_size: int,
        scaled: nn.Module,
        condition_dim: int,
        word_dim: int,
        hidden: int,
        dropout: float,
    ) -> None:
        """Initialise the weights from torch's global generator."""
        super().__init__()
        self.vocab_size, self.condition_dim = vocab_size, condition_dim
        self.scaled = scaled
        self.first_state = nn.Linear(condition_dim, hidden)
        self.first_cell = nn.Linear(condition_dim, hidden)
        self.inputs = nn.Parameter(
            torch.empty(vocab_size, word_dim).uniform_(-_WORD_RANGE, _WORD_RANGE)
        )
        self.of_word = nn.Linear(word_dim, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.of_context = nn.Linear(condition_dim, 4 * hidden, bias=False)
        self.cell_keys = nn.Linear(condition_dim, hidden)
        self.state_keys = nn.Linear(hidden, hidden, bias=False)
        self.fit = nn.Parameter(torch.randn(hidden) * hidden**-0.5)
        self.gate = nn.Linear(hidden, 1)
        self.out_state = nn.Linear(hidden, word_dim, bias=False)
        self.out_context = nn.Linear(condition_dim, word_dim, bias=False)
        self.words = nn.Parameter(torch.randn(vocab_size, word_dim) * word_dim**-0.5)
        self.output = Output(vocab_size)
        self.share = dropout

    def vectors(
        self, sentences: Tensor, conditions: Tensor, tags: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output vector before each word, and the words; see `attended`."""
        return self.attended(sentences, conditions)[:2]

    def attended(self, sentences: Tensor, conditions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output vector before each word, and the attention to each cell.

        Parameters
        ----------
        sentences : (sentences, length) int64 token ids, `START` first.
        conditions : (sentences, *cells, condition_dim) float32.

        Returns
        -------
        vectors : (positions, word_dim) float32, in the order of packed sequences: all first words,
            then all second ones.
        targets : (positions,) int64.
        attention : (sentences, cells) float32, summed over the words of a sentence; sentences are
            in the order of packed sequences.
        """
        sequence, _ = packed(sentences.masked_fill(sentences == END, PADDING))
        # Both have the same lengths, and so the same packed order.
        targets = packed(sentences[:, 1:])[0].data
        shared = self._of_grids(conditions[sequence.sorted_indices])
        read = dropout(embedding(sequence.data, self.inputs), self.share, self.training)
        of_words = self.of_word(read)
        own, start = {name: shared[name] for name in ("state", "cell")}, 0
        states, contexts, shares = [], [], []
        for number in sequence.batch_sizes.tolist():
            own = {name: values[:number] for name, values in own.items()}
            cells, keys = shared["cells"][:number], shared["keys"][:number]
            context, share = self._attend(cells, keys, own["state"])
            own = self._read(own, of_words[start : start + number], context)
            states.append(own["state"])
            contexts.append(context)
            shares.append(share)
            start += number
        owner = torch.cat([torch.arange(len(s), device=read.device) for s in shares])
        attention = shares[0].new_zeros(shares[0].shape).index_add(0, owner, torch.cat(shares))
        vectors = self._vectors(read, torch.cat(states), torch.cat(contexts))
        return dropout(vectors, self.share, self.training), targets, attention

    def start(
        self, conditions: Tensor, tags: Tensor | None = None, pairs: Tensor | None = None
    ) -> State:
        """See `SentenceModel.start`."""
        shared = self._of_grids(conditions)
        condition = rows_of_pairs(conditions, pairs)["condition"]
        own = {name: shared.pop(name)[condition] for name in ("state", "cell")}
        return State(shared, {**own, "condition": condition})

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """See `SentenceModel.step`."""
        condition, read = state.own["condition"], self.inputs[words]
        cells, keys = state.shared["cells"], state.shared["keys"]
        if len(cells) > 1:  # one grid is broadcast, not copied per sentence
            cells, keys = cells[condition], keys[condition]
        context, _ = self._attend(cells, keys, state.own["state"])
        own = self._read(state.own, self.of_word(read), context)
        scores = self.output.scores(self._vectors(read, own["state"], context), self.words)
        return scores, State(state.shared, {**own, "condition": condition})

    def _of_grids(self, conditions: Tensor) -> dict[str, Tensor]:
        """Return the cells of grids, their keys, and the LSTM's initial state."""
        cells = self.scaled(conditions.flatten(1, -2))
        mean = cells.mean(dim=1)
        return {
            "cells": cells,
            "keys": self.cell_keys(cells),
            "state": self.first_state(mean).tanh(),
            "cell": self.first_cell(mean).tanh(),
        }

    def _attend(self, cells: Tensor, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return contexts (n, condition_dim) and attention weights (n, cells).

        Parameters
        ----------
        cells, keys : (n, cells, ...) float32, or (1, cells, ...) for a common grid.
        state : (n, hidden) float32.
        """
        fits = (keys + self.state_keys(state)[:, None]).tanh() @ self.fit
        share = fits.softmax(dim=1)
        context = (share[:, None] @ cells)[:, 0]
        return self.gate(state).sigmoid() * context, share

    def _read(self, own: dict[str, Tensor], of_word: Tensor, context: Tensor) -> dict[str, Tensor]:
        """Return the LSTM's state after one more word each, given the word's part of the gates."""
        gates = of_word + self.of_state(own["state"]) + self.of_context(context)
        i, f, g, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * own["cell"] + i.sigmoid() * g.tanh()
        return {"state": o.sigmoid() * cell.tanh(), "cell": cell}

    def _vectors(self, read: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """Return the vectors to compare with output word vectors, eq. (7)."""
        return read + self.out_state(state) + self.out_context(context)
