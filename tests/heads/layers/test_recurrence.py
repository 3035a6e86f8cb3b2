"""Recurrent networks by fewer products: torch's own states and gradients, and their order."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from pipeline.heads.layers.recurrence import lstm_states, run_recurrent

LENGTHS = {"mixed": [3, 1, 7, 7, 2], "equal": [4, 4], "one word": [1], "one caption": [5]}


def captions(lengths: list[int]) -> PackedSequence:
    words = torch.randn(len(lengths), max(lengths), 5, dtype=torch.float64)
    return pack_padded_sequence(
        words, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_states_and_gradients_are_torchs(
    kind: type[nn.GRU] | type[nn.LSTM], layers: int, bidirectional: bool, lengths: list[int]
) -> None:
    torch.manual_seed(1)
    rnn = kind(5, 4, layers, bidirectional=bidirectional).double()
    sequence = captions(lengths)
    words = sequence.data.requires_grad_()

    def gradients(states: Tensor, last: Tensor) -> list[Tensor]:
        order = torch.arange(last.numel()).view_as(last)
        loss = states.sin().sum() + (last * order).cos().sum()
        found = torch.autograd.grad(loss, [words, *rnn.parameters()])
        return [states, last, *found]

    states, last = rnn(sequence)
    expected = gradients(states.data, last[0] if isinstance(last, tuple) else last)
    packed, last = run_recurrent(rnn, sequence)
    torch.testing.assert_close(gradients(packed.data, last), expected, rtol=1e-9, atol=1e-12)
    assert packed.batch_sizes.equal(states.batch_sizes)


def test_peepholes_have_the_gradient_of_their_equations() -> None:
    torch.manual_seed(2)
    w_ih, w_hh, bias, peepholes = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((12, 2), (12, 3), (12,), (3, 3))
    )
    words = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    inputs = (words, w_ih, w_hh, bias, peepholes)
    assert torch.autograd.gradcheck(
        lambda x, i, h, b, p: lstm_states(x, (3, 2, 1), i, h, b, peepholes=p), inputs
    )


def test_weights_that_are_not_trained_get_no_gradient_and_states_stay() -> None:
    rnn = nn.GRU(5, 4).double().requires_grad_(False)
    sequence = captions([3, 2])
    words = sequence.data.requires_grad_()
    states, _ = run_recurrent(rnn, sequence)
    states.data.sum().backward()
    assert words.grad is not None
    with torch.no_grad():
        again, _ = run_recurrent(rnn, sequence)
    assert again.data.equal(states.data)
