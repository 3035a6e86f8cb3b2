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
    """LSTM decoder with attention; conditions are grids (n, *cells, dim), without tags."""

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
        self.scaled = scaled  # standardisation of cells, fitted on the training split
        # From the mean cell to the initial state.
        self.first_state = nn.Linear(condition_dim, hidden)
        self.first_cell = nn.Linear(condition_dim, hidden)
        self.inputs = nn.Parameter(  # E
            torch.empty(vocab_size, word_dim).uniform_(-_WORD_RANGE, _WORD_RANGE)
        )
        # Gates i, f, g, o of the LSTM, eq. (1).
        self.of_word = nn.Linear(word_dim, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.of_context = nn.Linear(condition_dim, 4 * hidden, bias=False)
        # f_att, eq. (4): the sum of keys, tanh, and `fit`.
        self.cell_keys = nn.Linear(condition_dim, hidden)
        self.state_keys = nn.Linear(hidden, hidden, bias=False)
        self.fit = nn.Parameter(torch.randn(hidden) * hidden**-0.5)
        self.gate = nn.Linear(hidden, 1)  # beta of the context, section 4.2.1
        # L_h, L_z and L_o of eq. (7).
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
        """Return output vectors and words before each word, and the attention to each cell.

        Positions are in the order of packed sequences: all first words, then all second ones. The
        attention, (sentences, cells), is summed over the words of a sentence; sentences are in the
        order of packed sequences too. Conditions are (sentences, *cells, condition_dim) float32.
        """
        sequence, _ = packed(sentences.masked_fill(sentences == END, PADDING))
        # Both have the same lengths, and so the same packed order.
        targets = packed(sentences[:, 1:])[0].data
        shared = self._of_grids(conditions[sequence.sorted_indices])
        read = dropout(embedding(sequence.data, self.inputs), self.share, self.training)
        of_words = self.of_word(read)
        state, start = {name: shared[name] for name in ("state", "cell")}, 0
        states, contexts, shares = [], [], []
        for number in sequence.batch_sizes.tolist():
            # Packed order is by length: sentences that have ended are the last rows.
            state = {name: values[:number] for name, values in state.items()}
            cells, keys = shared["cells"][:number], shared["keys"][:number]
            context, share = self._attend(cells, keys, state["state"])
            state = self._read(state, of_words[start : start + number], context)
            states.append(state["state"])
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
        rows = {name: shared.pop(name)[condition] for name in ("state", "cell")}
        return State(shared, {**rows, "condition": condition})

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """See `SentenceModel.step`."""
        condition, read = state.rows["condition"], self.inputs[words]
        cells, keys = state.shared["cells"], state.shared["keys"]
        if len(cells) > 1:  # one grid is broadcast, not copied per sentence
            cells, keys = cells[condition], keys[condition]
        context, _ = self._attend(cells, keys, state.rows["state"])
        after = self._read(state.rows, self.of_word(read), context)
        scores = self.output.scores(self._vectors(read, after["state"], context), self.words)
        return scores, State(state.shared, {**after, "condition": condition})

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
        """Return contexts (n, condition_dim) and attention weights (n, cells) for n states."""
        fits = (keys + self.state_keys(state)[:, None]).tanh() @ self.fit
        share = fits.softmax(dim=1)
        context = (share[:, None] @ cells)[:, 0]
        return self.gate(state).sigmoid() * context, share

    def _read(
        self, state: dict[str, Tensor], of_word: Tensor, context: Tensor
    ) -> dict[str, Tensor]:
        """Return the LSTM's state after one more word each, given the word's part of the gates."""
        gates = of_word + self.of_state(state["state"]) + self.of_context(context)
        i, f, g, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * state["cell"] + i.sigmoid() * g.tanh()
        return {"state": o.sigmoid() * cell.tanh(), "cell": cell}

    def _vectors(self, read: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """Return the vectors to compare with output word vectors, eq. (7)."""
        return read + self.out_state(state) + self.out_context(context)
