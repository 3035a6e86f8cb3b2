"""Recurrent networks over padded captions, for exported programs, which cannot skip padding."""

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn


class Padded(NamedTuple):
    """Captions with their padding, in the place of a `PackedSequence`."""

    data: Tensor  # (steps, captions, ...), words in front
    lengths: Tensor  # (captions,), at least 1

    @property
    def present(self) -> Tensor:
        """Mask (steps, captions, 1) of words."""
        steps = torch.arange(len(self.data), device=self.lengths.device)
        return (steps[:, None] < self.lengths)[..., None]

    def reversed(self) -> Self:
        """Return the captions with their words in reverse order, and padding where it is."""
        steps = torch.arange(len(self.data), device=self.lengths.device)[:, None, None]
        order = torch.where(self.present, self.lengths[:, None] - 1 - steps, steps)
        return self._replace(data=self.data.gather(0, order.expand_as(self.data)))

    def last(self) -> Tensor:
        """Return the rows (captions, dim) of the last words."""
        at = (self.lengths - 1)[None, :, None].expand(1, -1, self.data.shape[2])
        return self.data.gather(0, at)[0]


def run_padded(rnn: nn.GRU | nn.LSTM, captions: Padded) -> tuple[Padded, Tensor]:
    """Return all states, and the last (layers * directions, captions, hidden) of a network."""
    ends = []
    for layer in range(rnn.num_layers):
        ways = []
        for suffix in ("", "_reverse")[: 1 + rnn.bidirectional]:
            weights = [
                getattr(rnn, f"{name}_l{layer}{suffix}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            states = _one_way(rnn, captions.reversed() if suffix else captions, weights)
            ends.append(states.last())
            ways.append((states.reversed() if suffix else states).data)
        captions = captions._replace(data=torch.cat(ways, dim=2))
    return captions, torch.stack(ends)


def _one_way(rnn: nn.GRU | nn.LSTM, captions: Padded, weights: list[Tensor]) -> Padded:
    x, options = captions.data, (True, 1, 0.0, False, False, False)
    start = x.new_zeros(1, x.shape[1], rnn.hidden_size)
    if isinstance(rnn, nn.GRU):
        states, _ = torch.gru(x, start, weights, *options)
    else:
        states, _, _ = torch.lstm(x, [start, start], weights, *options)
    return captions._replace(data=states)
