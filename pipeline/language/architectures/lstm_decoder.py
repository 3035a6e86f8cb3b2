"""An LSTM decoder that reads the image first, then the words of the sentence.

As in Vinyals et al. 2015 ("Show and tell"), with the peephole LSTM of Kiros et al. 2014.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from pipeline.heads.layers.rnn import PeepholeLSTM, packed
from pipeline.language.layers.output import Output
from pipeline.language.model import State, rows_of_pairs
from pipeline.text.encoders.token_ids import END, PADDING, START

_WORD_RANGE = 0.1


class LstmDecoder(nn.Module):
    """LSTM decoder that reads the image first, without tags."""

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
        self.scaled = scaled  # standardisation of conditions, fitted on the training split
        self.first = nn.Linear(condition_dim, word_dim)  # condition to first input
        self.inputs = nn.Parameter(
            torch.empty(vocab_size, word_dim).uniform_(-_WORD_RANGE, _WORD_RANGE)
        )
        self.lstm = PeepholeLSTM(word_dim, hidden)
        self.words = nn.Parameter(torch.randn(vocab_size, hidden) * hidden**-0.5)
        self.output = Output(vocab_size)
        self.share = dropout

    def vectors(
        self, sentences: Tensor, conditions: Tensor, tags: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the states before each word, and the words; see `ContextModel.vectors`.

        Positions are in the order of packed sequences: all first words, then all second ones.
        """
        read = sentences.masked_fill(sentences == END, PADDING)
        # A leading id reserves the position of the image; its value is not used.
        begun = sentences.new_full((len(sentences), 1), START)
        sequence, _ = packed(torch.cat([begun, read], dim=1))
        images = int(sequence.batch_sizes[0])
        first = self.first(self.scaled(conditions))
        if sequence.sorted_indices is not None:
            first = first[sequence.sorted_indices]
        data = torch.cat([first, embedding(sequence.data[images:], self.inputs)])
        data = dropout(data, self.share, self.training)
        states, _ = self.lstm(sequence._replace(data=data))
        # Both have the same lengths, and so the same packed order.
        targets = packed(torch.cat([begun, sentences[:, 1:]], dim=1))[0].data
        vectors = dropout(states.data[images:], self.share, self.training)
        return vectors, targets[images:]

    def start(
        self, conditions: Tensor, tags: Tensor | None = None, pairs: Tensor | None = None
    ) -> State:
        """See `SentenceModel.start`."""
        zero = conditions.new_zeros(len(conditions), len(self.lstm.peepholes[0]))
        first = self._read({"state": zero, "cell": zero}, self.first(self.scaled(conditions)))
        return State({}, first).of(rows_of_pairs(conditions, pairs)["condition"])

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """See `SentenceModel.step`."""
        after = self._read(state.rows, self.inputs[words])
        return self.output.scores(after["state"], self.words), State({}, after)

    def _read(self, state: dict[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
        """Return the state after one more input each; see `PeepholeLSTM`."""
        cell, peepholes = state["cell"], self.lstm.peepholes
        gates = self.lstm.word(inputs) + self.lstm.state(state["state"])
        i, f, g, o = gates.chunk(4, dim=1)
        remembered = (f + peepholes[1] * cell).sigmoid() * cell
        cell = remembered + (i + peepholes[0] * cell).sigmoid() * g.tanh()
        return {"state": (o + peepholes[2] * cell).sigmoid() * cell.tanh(), "cell": cell}
