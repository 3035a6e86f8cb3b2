"""Recurrent sentence towers: padding counts for nothing, states are the right ones."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.heads.layers.rnn import (
    PEEPHOLE_CELLS,
    RANDOM_WORD,
    PeepholeLSTM,
    SentenceTower,
    WordSum,
    packed,
    word_table,
)
from pipeline.text.encoders.token_ids import PADDING, UNKNOWN

IDS, WORD, DIM = 12, 5, 6
TOWERS = [
    (cell, layers, bidirectional, pooling)
    for cell in ("gru", "lstm")
    for layers, bidirectional in ((1, False), (1, True), (2, True))
    for pooling in ("last", "mean", "max")
] + [(cell, 1, False, p) for cell in PEEPHOLE_CELLS for p in ("last", "mean", "max")]
CAPTIONS: tuple[list[int], ...] = ([4, 5, 6], [7], [], [8, 1, 9, 10, 11], [4, 5, 6, 6])


def tower(
    cell: str = "gru", layers: int = 1, bidirectional: bool = False, pooling: str = "last"
) -> SentenceTower:
    torch.manual_seed(3)
    table = word_table(IDS, WORD, None, trained=True)
    return SentenceTower(table, DIM, cell, layers, bidirectional, pooling)


def rows(captions: tuple[list[int], ...], padding: str, length: int) -> Tensor:
    ids = torch.full((len(captions), length), float(PADDING))
    for row, caption in zip(ids, captions, strict=True):
        at = slice(len(caption)) if padding == "back" else slice(length - len(caption), None)
        row[at] = torch.tensor(caption)
    return ids


def naive(net: SentenceTower, caption: list[int]) -> Tensor:
    """One caption, one step, one layer and one direction after another, by the equations."""
    states = [net.words.weight[word] for word in caption]
    if not states:
        return torch.zeros(DIM)
    if not isinstance(net.rnn, nn.RNNBase):
        return peepholes(net, states)
    for layer in range(net.rnn.num_layers):
        ways = []
        for suffix in ("", "_reverse")[: 1 + net.rnn.bidirectional]:
            w, r, b, c = (
                getattr(net.rnn, f"{name}_l{layer}{suffix}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            state = cell = torch.zeros(r.shape[1])
            way = []
            for x in reversed(states) if suffix else states:
                if isinstance(net.rnn, nn.GRU):
                    (r1, z1, n1), (r2, z2, n2) = (w @ x + b).chunk(3), (r @ state + c).chunk(3)
                    z = torch.sigmoid(z1 + z2)
                    state = (1 - z) * torch.tanh(n1 + torch.sigmoid(r1 + r2) * n2) + z * state
                else:
                    i, f, g, o = (w @ x + b + r @ state + c).chunk(4)
                    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
                    state = torch.sigmoid(o) * torch.tanh(cell)
                way.append(state)
            ways.append(way[::-1] if suffix else way)
        states = [torch.cat(parts) for parts in zip(*ways, strict=True)]
    if net.pooling == "last":
        half = len(states[-1]) // len(ways)
        return states[-1] if len(ways) == 1 else torch.cat([states[-1][:half], states[0][half:]])
    stacked = torch.stack(states)
    return stacked.mean(dim=0) if net.pooling == "mean" else stacked.amax(dim=0)


def peepholes(net: SentenceTower, words: list[Tensor]) -> Tensor:
    """Kiros et al. 2014, eq. (1) to (5), a word and a gate at a time."""
    weights = dict(net.rnn.named_parameters())
    x_i, x_f, x_c, x_o = weights["word.weight"].chunk(4)
    b_i, b_f, b_c, b_o = weights["word.bias"].chunk(4)
    h_i, h_f, h_c, h_o = weights["state.weight"].chunk(4)
    whole = weights["peepholes"].ndim == 3
    c_i, c_f, c_o = weights["peepholes"] if whole else map(torch.diag, weights["peepholes"])
    m = c = torch.zeros(DIM)
    states = []
    for x in words:
        i = torch.sigmoid(x_i @ x + h_i @ m + c_i @ c + b_i)
        f = torch.sigmoid(x_f @ x + h_f @ m + c_f @ c + b_f)
        c = f * c + i * torch.tanh(x_c @ x + h_c @ m + b_c)
        o = torch.sigmoid(x_o @ x + h_o @ m + c_o @ c + b_o)
        m = o * torch.tanh(c)
        states.append(m)
    if net.pooling == "last":
        return m
    stacked = torch.stack(states)
    return stacked.mean(dim=0) if net.pooling == "mean" else stacked.amax(dim=0)


def test_peephole_weights_start_as_in_the_paper() -> None:
    rnn = PeepholeLSTM(40, 50)
    drawn = torch.cat([p.detach().flatten() for p in rnn.parameters()])
    assert len(drawn) == 4 * (40 + 1 + 50) * 50 + 3 * 50
    assert 0.0799 < drawn.abs().max() <= 0.08
    assert drawn.std() == pytest.approx(0.08 / 3**0.5, rel=0.02)
    assert abs(drawn.mean()) < 0.002


@pytest.mark.parametrize("settings", TOWERS)
def test_states_follow_the_equations_wherever_padding_stands(settings: tuple) -> None:
    net = tower(*settings)
    expected = torch.stack([naive(net, caption) for caption in CAPTIONS])
    for padding in ("front", "back"):
        for length in (5, 9):
            torch.testing.assert_close(net(rows(CAPTIONS, padding, length)), expected)


@pytest.mark.parametrize("settings", TOWERS)
def test_a_caption_alone_is_embedded_as_in_a_batch(settings: tuple) -> None:
    net = tower(*settings)
    together = net(rows(CAPTIONS, "back", 7))
    alone = [net(rows((caption,), "front", 5)) for caption in CAPTIONS]
    torch.testing.assert_close(torch.cat(alone), together, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["last", "mean", "max"])
def test_no_gradient_reaches_padding_or_words_of_other_captions(pooling: str) -> None:
    net = tower(pooling=pooling, bidirectional=True)
    net(rows(CAPTIONS, "front", 9))[1].sum().backward()
    gradient = net.words.weight.grad
    assert gradient is not None
    assert gradient.any(dim=1).nonzero().flatten().tolist() == [7]
    net.zero_grad()
    net(rows(([], []), "front", 3)).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in net.parameters())


def test_training_leaves_padding_zero() -> None:
    net = tower()
    optimiser = torch.optim.Adam(net.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        net(rows(CAPTIONS, "back", 6)).square().sum().backward()
        optimiser.step()
    assert not net.words.weight[PADDING].any()


def test_packing_drops_columns_that_no_caption_uses() -> None:
    sequence, lengths = packed(rows(CAPTIONS, "front", 40))
    assert lengths.tolist() == [3, 1, 0, 5, 4]
    assert len(sequence.batch_sizes) == 5
    assert len(sequence.data) == 3 + 1 + 1 + 5 + 4


def test_the_sum_of_words_is_the_sum_of_their_vectors() -> None:
    table = word_table(IDS, WORD, None, trained=True)
    expected = [table.weight[caption].sum(dim=0) for caption in CAPTIONS]
    for padding in ("front", "back"):
        found = WordSum(table)(rows(CAPTIONS, padding, 8))
        torch.testing.assert_close(found, torch.stack(expected))


def test_words_start_from_their_vectors_and_the_others_small_and_random() -> None:
    words = np.full((IDS, WORD), np.nan, np.float32)
    words[4:9] = 3.0 + np.arange(5 * WORD).reshape(5, WORD)
    torch.manual_seed(0)
    weight = word_table(IDS, WORD, words, trained=True).weight
    np.testing.assert_array_equal(weight[4:9].detach().numpy(), words[4:9])
    assert not weight[PADDING].any()
    others = weight[[UNKNOWN, 2, 3, 9, 10, 11]]
    assert (others.abs() <= RANDOM_WORD).all()
    assert (others.std(dim=0) > 0.01).all()


@pytest.mark.parametrize("trained", [True, False])
def test_frozen_words_stay_and_trained_words_move(trained: bool) -> None:
    torch.manual_seed(0)
    table = word_table(IDS, WORD, None, trained)
    before = table.weight.detach().clone()
    net = SentenceTower(table, DIM, "gru", 1, False, "last")
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.5)
    F.mse_loss(net(rows(([4, UNKNOWN],), "back", 3)), torch.ones(1, DIM)).backward()
    optimiser.step()
    moved = (table.weight != before).any(dim=1).nonzero().flatten().tolist()
    assert moved == ([UNKNOWN, 4] if trained else [])
    assert "words.weight" in net.state_dict()


def test_word_vectors_of_another_shape_or_broken_are_refused() -> None:
    with pytest.raises(HeadError, match="word_dim"):
        word_table(IDS, WORD, np.zeros((IDS, WORD + 1), np.float32), trained=True)
    broken = np.zeros((IDS, WORD), np.float32)
    broken[5, 2] = np.nan
    with pytest.raises(HeadError, match="within a row"):
        word_table(IDS, WORD, broken, trained=True)
