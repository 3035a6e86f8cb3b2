"""The LSTM of Kiros et al. 2014, whose gates see the cell."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

_START = 0.08  # section 3.1; torch's own start is 1 / sqrt(hidden)


class PeepholeLSTM(nn.Module):
    """One layer, one direction, on packed sequences.

    Kiros et al. 2014, eq. (1) to (5): the input and forget gates see the cell before the step, the
    output gate sees it afterwards, each through a whole matrix, as printed (in Graves 2013, whom
    they cite, it is a diagonal one). Weights and biases start uniform in plus or minus 0.08.
    """

    bidirectional = False

    def __init__(self, inputs: int, hidden: int) -> None:
        """Take the lengths of a word and of the state."""
        super().__init__()
        self.word = nn.Linear(inputs, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.cell_before = nn.Linear(hidden, 2 * hidden, bias=False)
        self.cell_after = nn.Linear(hidden, hidden, bias=False)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_START, _START)

    def forward(self, sequence: PackedSequence) -> tuple[PackedSequence, Tensor]:
        """Return the states of a batch and the last of each caption, as `torch.nn.GRU` does.

        Returns
        -------
        states : packed as `sequence` is.
        last : (1, captions, hidden), in the order of the batch before it was packed.
        """
        words = self.word(sequence.data).split(sequence.batch_sizes.tolist())
        state = cell = words[0].new_zeros(len(words[0]), self.cell_after.out_features)
        states, ended = [], []
        for word in words:
            # The longest captions come first, so that those that have ended are the last rows.
            ended.append(state[len(word) :])
            state, cell = state[: len(word)], cell[: len(word)]
            gates = word + self.state(state)
            take, keep, give, new = gates.chunk(4, dim=1)
            seen_by_take, seen_by_keep = self.cell_before(cell).chunk(2, dim=1)
            kept = torch.sigmoid(keep + seen_by_keep) * cell
            cell = kept + torch.sigmoid(take + seen_by_take) * torch.tanh(new)
            state = torch.sigmoid(give + self.cell_after(cell)) * torch.tanh(cell)
            states.append(state)
        last = torch.cat([state, *reversed(ended)])
        if sequence.unsorted_indices is not None:
            last = last[sequence.unsorted_indices]
        return sequence._replace(data=torch.cat(states)), last[None]
