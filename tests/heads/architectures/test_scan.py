"""SCAN: cells and words as unit vectors, by hand; absent words; refusals, training."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pipeline.heads.architectures.scan import Cells, ScanSettings, Words, task
from pipeline.heads.inputs.batches import Batch
from tests.heads.factories import GRID, SEQUENCE, grid_pairs, inputs_of_parts


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("shape", [(3, 2), (6,)])
def test_a_cell_is_its_own_linear_map_of_unit_length(shape: tuple[int, ...]) -> None:
    net = Cells(5, 4)
    grids = torch.randn(2, *shape, 5)
    found = net(grids)
    assert found.shape == (2, 6, 4)
    for image, cell in ((0, 0), (1, 5)):
        mapped = net.project.weight @ grids.reshape(2, 6, 5)[image, cell]
        torch.testing.assert_close(found[image, cell], mapped / mapped.norm())


def states(net: Words, captions: list[list[int]], reverse: bool) -> list[torch.Tensor]:
    """The states of one direction, word after word."""
    cell = nn.GRUCell(net.gru.input_size, net.gru.hidden_size)
    suffix = "_l0_reverse" if reverse else "_l0"
    cell.load_state_dict(
        {name: net.gru.get_parameter(name + suffix) for name, _ in cell.named_parameters()}
    )
    found = []
    for caption in captions:
        state, states = torch.zeros(1, net.gru.hidden_size), []
        for word in caption[::-1] if reverse else caption:
            state = cell(net.words(torch.tensor([word])), state)
            states.append(state[0])
        found.append(torch.stack(states[::-1] if reverse else states))
    return found


def test_a_word_is_the_mean_of_both_directions_and_padding_is_absent() -> None:
    net = Words(nn.Embedding(20, 4, padding_idx=0), 6).eval()
    captions = [[5, 9, 4], [7], [4, 5, 6, 7, 8, 4]]
    front, back = torch.zeros(2, 4, 6)
    for row, words in enumerate(captions):
        front[row, 6 - len(words) :] = torch.tensor(words)
        back[row, : len(words)] = torch.tensor(words)
    found = net(front)
    torch.testing.assert_close(net(back), found, rtol=0, atol=0)
    both = zip(states(net, captions, False), states(net, captions, True), strict=True)
    for row, (forwards, backwards) in enumerate(both):
        own = F.normalize((forwards + backwards) / 2, dim=1)
        torch.testing.assert_close(found[row, : len(own)], own)
        assert found[row, len(own) :].abs().sum() == 0
    assert found[3].abs().sum() == 0

    found[:2].sum().backward()
    assert net.words.weight.grad is not None
    used = net.words.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert used == [4, 5, 7, 9]


@pytest.mark.parametrize("similarity", ["scan-t2i-avg", "scan-i2t-lse"])
def test_longer_rows_change_neither_the_loss_nor_its_gradient(similarity: str) -> None:
    plan = task(
        ScanSettings(similarity=similarity, dim=6, word_dim=4), inputs_of_parts(GRID, SEQUENCE)
    )
    net = plan.build(None)
    pairs = grid_pairs(4)
    captions = torch.from_numpy(pairs.captions.take(np.arange(12)))
    images = torch.from_numpy(pairs.images.take(np.arange(4)))
    image_of_caption = torch.from_numpy(pairs.image_of_caption)
    losses, gradients = [], []
    for rows in (captions, F.pad(captions, (5, 0)), F.pad(captions, (0, 3))):
        net.zero_grad()
        loss = plan.loss(net, Batch(images, rows, image_of_caption), 0, torch.Generator())
        loss.backward()
        losses.append(loss.detach())
        gradients.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    assert losses[0] > 0
    for loss, own in zip(losses[1:], gradients[1:], strict=True):
        torch.testing.assert_close(loss, losses[0])
        torch.testing.assert_close(own, gradients[0], rtol=1e-4, atol=1e-5)
