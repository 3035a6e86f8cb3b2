"""GRU and LSTM over packed captions, on a CPU with fewer and larger products than torch's own.

A time step multiplies only the state. The words of all steps are multiplied in one product before
the first step; the gradients of the weights and of the words are each one product after the last
step, where torch sums one product per step. On a GPU, torch's own networks run.

With products in bfloat16 (see `layers.products`), weights and factors are rounded to bfloat16. In
an exported program, captions are `Padded`.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pipeline.heads.layers.padded import Padded, run_padded
from pipeline.heads.layers.products import as_factor

Sizes = Sequence[int]
"""Captions per step, descending; rows are the captions of step 0, then those of step 1."""


def words_first(padding: Tensor) -> Tensor:
    """Return the order (captions, length) that moves padding to the end; words keep theirs."""
    # Distinct keys, since ONNX has no stable sort.
    length = padding.shape[1]
    return (padding * length + torch.arange(length, device=padding.device)).argsort(dim=1)


def pack(rows: Tensor, lengths: Tensor) -> PackedSequence:
    """Pack rows (captions, length, ...) with the words in front; an empty caption has one."""
    lengths = lengths.clamp_min(1)
    if torch.compiler.is_exporting():
        # Its users are the functions of this module, and modules that only replace `data`.
        return cast(PackedSequence, Padded(rows.transpose(0, 1), lengths))
    return pack_padded_sequence(rows, lengths.cpu(), batch_first=True, enforce_sorted=False)


def unpack(
    sequence: PackedSequence,
    fill: float = 0.0,
    batch_first: bool = False,
    length: int | None = None,
) -> Tensor:
    """Return padded states (length, captions, dim), or (captions, length, dim)."""
    if isinstance(sequence, Padded):
        states = sequence.data.masked_fill(~sequence.present, fill)
        return states.transpose(0, 1) if batch_first else states
    return pad_packed_sequence(sequence, batch_first, fill, length)[0]


def run_recurrent(rnn: nn.GRU | nn.LSTM, sequence: PackedSequence) -> tuple[PackedSequence, Tensor]:
    """Return packed states and last states (layers * directions, captions, hidden) of a network."""
    if isinstance(sequence, Padded):
        return run_padded(rnn, sequence)
    if sequence.data.device.type != "cpu":
        states, last = rnn(sequence)
        return states, last[0] if isinstance(last, tuple) else last
    sizes = sequence.batch_sizes.tolist()
    steps = gru_states if isinstance(rnn, nn.GRU) else lstm_states
    rows_at_ends = last_rows(sequence)
    ends, data = [], sequence.data
    for layer in range(rnn.num_layers):
        outputs = []
        for suffix in ("", "_reverse")[: 1 + rnn.bidirectional]:
            weights = [
                getattr(rnn, f"{name}_l{layer}{suffix}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if suffix:
                backwards = _backwards(sequence.batch_sizes)
                states = steps(data[backwards], sizes, *weights)[backwards]
                end = states[_order(sequence)]
            else:
                states = steps(data, sizes, *weights)
                end = states[rows_at_ends]
            outputs.append(states)
            ends.append(end)
        data = torch.cat(outputs, dim=1) if rnn.bidirectional else outputs[0]
    return sequence._replace(data=data), torch.stack(ends)


def last_rows(sequence: PackedSequence) -> Tensor:
    """Return (captions,): the packed row of each caption's last word, in batch order."""
    sizes = sequence.batch_sizes
    captions = _order(sequence)
    lengths = (sizes[:, None] > captions).sum(0)
    return (sizes.cumsum(0) - sizes)[lengths - 1] + captions


def gru_states(
    words: Tensor, sizes: Sizes, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """Return the states (rows, hidden) float32 of one layer and direction, by torch's equations."""
    w_ih, w_hh = as_factor(w_ih), as_factor(w_hh)
    states: Tensor = _Gru.apply(words, tuple(sizes), w_ih, w_hh, b_ih, b_hh)
    return states


def lstm_states(
    words: Tensor,
    sizes: Sizes,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> Tensor:
    """Return the states (rows, hidden) float32 of one layer and direction; see `gru_states`."""
    bias = b_ih if b_hh is None else b_ih + b_hh
    # Peepholes (3, hidden): the cell before the step to the input and forget gates, and the cell
    # after it to the output gate.
    w_ih, w_hh = as_factor(w_ih), as_factor(w_hh)
    states: Tensor = _Lstm.apply(words, tuple(sizes), w_ih, w_hh, bias, peepholes)
    return states


def plain_lstm_states(
    words: Tensor, sizes: Sizes, w_ih: Tensor, w_hh: Tensor, bias: Tensor, *, peepholes: Tensor
) -> Tensor:
    """Return the states of an LSTM with any peepholes, Kiros et al. 2014, eq. (1) to (5)."""
    # W_ci, W_cf and W_co, (hidden, hidden) or their diagonals; a plain loop in float32,
    # differentiated by autograd.
    whole = peepholes.ndim == 3
    of_input, of_forget, of_output = peepholes.transpose(1, 2) if whole else peepholes
    through = torch.matmul if whole else torch.mul
    gates = torch.addmm(bias, words, w_ih.T)
    state = cell = words.new_zeros(sizes[0], w_hh.shape[1])
    states = []
    for rows in _steps(sizes):
        number = rows.stop - rows.start
        state, cell = state[:number], cell[:number]
        i, f, g, o = torch.addmm(gates[rows], state, w_hh.T).chunk(4, dim=1)
        retained = torch.sigmoid(f + through(cell, of_forget)) * cell
        cell = retained + torch.sigmoid(i + through(cell, of_input)) * torch.tanh(g)
        state = torch.sigmoid(o + through(cell, of_output)) * torch.tanh(cell)
        states.append(state)
    return torch.cat(states)


class _Gru(torch.autograd.Function):
    """r, z = sigmoid; new = tanh(word + r * (state + bias)); state = (1 - z) * new + z * state."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sizes, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        hidden = w_hh.shape[1]
        gates = _affine(b_ih, x, w_ih)
        states, before, seen = (x.new_empty(len(x), hidden) for _ in range(3))
        state = x.new_zeros(sizes[0], hidden)
        for rows in _steps(sizes):
            state = state[: rows.stop - rows.start]
            before[rows] = state
            of_state = _affine(b_hh, state, w_hh)
            both = gates[rows, : 2 * hidden].add_(of_state[:, : 2 * hidden]).sigmoid_()
            seen[rows] = of_state[:, 2 * hidden :]
            new = gates[rows, 2 * hidden :]
            new.addcmul_(both[:, :hidden], seen[rows]).tanh_()
            state = torch.lerp(new, state, both[:, hidden:], out=states[rows])
        ctx.save_for_backward(x, w_ih, w_hh, gates, before, seen)
        ctx.sizes = sizes
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_states: Tensor) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, gates, before, seen = ctx.saved_tensors
        hidden = w_hh.shape[1]
        r, z, new = gates.chunk(3, dim=1)
        by_new = (1 - z) * (1 - new * new)
        by_z = (before - new) * z * (1 - z)
        by_r = seen * r * (1 - r)
        # The candidate state uses the previous state times r, so that its two gradients differ.
        of_words, of_state = torch.empty_like(gates), torch.empty_like(gates)
        carried = of_states.new_zeros(ctx.sizes[0], hidden)
        for rows in reversed(_steps(ctx.sizes)):
            of = carried[: rows.stop - rows.start].add_(of_states[rows])
            to_r, to_z, to_new = of_words[rows].chunk(3, dim=1)
            torch.mul(of, by_new[rows], out=to_new)
            torch.mul(of, by_z[rows], out=to_z)
            torch.mul(to_new, by_r[rows], out=to_r)
            here = of_state[rows]
            here[:, : 2 * hidden] = of_words[rows, : 2 * hidden]
            torch.mul(to_new, r[rows], out=here[:, 2 * hidden :])
            _add_product(of.mul_(z[rows]), here, w_hh)
        of_biases = of_words.sum(0), of_state.sum(0)
        of_words, of_state, x, before = (t.to(w_hh.dtype) for t in (of_words, of_state, x, before))
        of_x = (of_words @ w_ih).to(of_states.dtype)
        return of_x, None, of_words.T @ x, of_state.T @ before, *of_biases


class _Lstm(torch.autograd.Function):
    """i, f, o = sigmoid, g = tanh; cell = f * cell + i * g; state = o * tanh(cell)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sizes, w_ih: Tensor, w_hh: Tensor, bias: Tensor,
        peepholes: Tensor | None,
    ) -> Tensor:  # fmt: skip
        hidden = w_hh.shape[1]
        gates = _affine(bias, x, w_ih)
        states, before, cell_before, cells = (x.new_empty(len(x), hidden) for _ in range(4))
        state = x.new_zeros(sizes[0], hidden)
        cell = state
        for rows in _steps(sizes):
            number = rows.stop - rows.start
            before[rows], cell_before[rows] = state[:number], cell[:number]
            cell = cell_before[rows]
            i, f, g, o = _add_product(gates[rows], before[rows], w_hh.T).chunk(4, dim=1)
            if peepholes is not None:
                i.addcmul_(peepholes[0], cell)
                f.addcmul_(peepholes[1], cell)
            f.sigmoid_()
            cell = torch.mul(f, cell, out=cells[rows]).addcmul_(i.sigmoid_(), g.tanh_())
            if peepholes is not None:
                o.addcmul_(peepholes[2], cell)
            state = torch.mul(o.sigmoid_(), cell.tanh(), out=states[rows])
        ctx.save_for_backward(x, w_ih, w_hh, peepholes, gates, before, cell_before, cells)
        ctx.sizes = sizes
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_states: Tensor) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, peepholes, gates, before, cell_before, cells = ctx.saved_tensors
        hidden = w_hh.shape[1]
        i, f, g, o = gates.chunk(4, dim=1)
        squashed = cells.tanh()
        by_i, by_f = g * i * (1 - i), cell_before * f * (1 - f)
        by_g, by_o = i * (1 - g * g), squashed * o * (1 - o)
        by_cell = o * (1 - squashed * squashed)
        of_gates = torch.empty_like(gates)
        carried, carried_cell = (of_states.new_zeros(ctx.sizes[0], hidden) for _ in range(2))
        for rows in reversed(_steps(ctx.sizes)):
            number = rows.stop - rows.start
            of = carried[:number].add_(of_states[rows])
            of_cell = carried_cell[:number].addcmul_(of, by_cell[rows])
            to_i, to_f, to_g, to_o = of_gates[rows].chunk(4, dim=1)
            torch.mul(of, by_o[rows], out=to_o)
            if peepholes is not None:
                of_cell.addcmul_(to_o, peepholes[2])
            torch.mul(of_cell, by_i[rows], out=to_i)
            torch.mul(of_cell, by_f[rows], out=to_f)
            torch.mul(of_cell, by_g[rows], out=to_g)
            of_cell.mul_(f[rows])
            if peepholes is not None:
                of_cell.addcmul_(to_i, peepholes[0]).addcmul_(to_f, peepholes[1])
            if w_hh.dtype == of.dtype:
                torch.mm(of_gates[rows], w_hh, out=of)
            else:
                of.copy_(of_gates[rows].to(w_hh.dtype) @ w_hh)
        of_peepholes = None
        if peepholes is not None:
            to_i, to_f, _, to_o = of_gates.chunk(4, dim=1)
            pairs = ((to_i, cell_before), (to_f, cell_before), (to_o, cells))
            of_peepholes = torch.stack([(of * cell).sum(0) for of, cell in pairs])
        of_bias = of_gates.sum(0)
        of_gates, x, before = (t.to(w_hh.dtype) for t in (of_gates, x, before))
        of_x = (of_gates @ w_ih).to(of_states.dtype)
        return of_x, None, of_gates.T @ x, of_gates.T @ before, of_bias, of_peepholes


def _affine(bias: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Return bias + rows weight' in float32; the factors are of the weight's type."""
    if weight.dtype == rows.dtype:
        return torch.addmm(bias, rows, weight.T)
    return (rows.to(weight.dtype) @ weight.T).to(rows.dtype).add_(bias)


def _add_product(out: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Add rows weight to float32 numbers in place; the factors are of the weight's type."""
    if weight.dtype == rows.dtype:
        return out.addmm_(rows, weight)
    return out.add_(rows.to(weight.dtype) @ weight)


def _steps(sizes: Sizes) -> list[slice]:
    stops = accumulate(sizes)
    return [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]


def _backwards(sizes: Tensor) -> Tensor:
    """Return (rows,): the source row of each row when captions are reversed."""
    starts = sizes.cumsum(0) - sizes
    captions = torch.arange(int(sizes[0]))
    lengths = (sizes[:, None] > captions).sum(0)
    steps = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    caption = torch.arange(int(sizes.sum())) - starts[steps]
    return starts[lengths[caption] - 1 - steps] + caption


def _order(sequence: PackedSequence) -> Tensor:
    """Return (captions,): the position in the packed order of each caption of the batch."""
    if sequence.unsorted_indices is None:
        return torch.arange(int(sequence.batch_sizes[0]))
    return sequence.unsorted_indices
