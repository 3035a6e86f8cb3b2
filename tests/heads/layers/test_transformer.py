"""Transformer encoders against naive loops and torch's own; masks; training on made grids."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pipeline.heads import HeadError
from pipeline.heads.architectures.relational import Pools, RelationalSettings, task
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.batches import Batch
from pipeline.heads.layers.transformer import (
    GridEncoder,
    GruLayer,
    SelfAttention,
    Stack,
    TransformerLayer,
    WordEncoder,
    moved,
    pooled,
)
from pipeline.text.encoders.token_ids import PADDING
from tests.heads.factories import GRID, SEQUENCE, grid_pairs, inputs_of_parts

SMALL = Stack(dim=6, heads=3, layers=2, dropout=0.0, pooling="mean")


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


def naive_attention(layer: SelfAttention, x: np.ndarray, present: np.ndarray) -> np.ndarray:
    """One row, entity by entity and head by head."""
    dim = layer.output.in_features
    size = dim // layer.heads
    weight = layer.query_key_value.weight.detach().numpy()
    query, key, value = (x @ weight[part * dim : (part + 1) * dim].T for part in range(3))
    mixed = np.zeros((len(x), dim))
    for head in range(layer.heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            there = [j for j in range(len(x)) if present[j]]
            scores = [math.exp(query[i, own] @ key[j, own] / math.sqrt(size)) for j in there]
            for j, score in zip(there, scores, strict=True):
                mixed[i, own] += score / sum(scores) * value[j, own]
    return np.asarray(mixed @ layer.output.weight.detach().numpy().T)


@pytest.mark.parametrize(("inputs", "dim", "heads"), [(5, 6, 3), (6, 6, 1), (4, 8, 8)])
def test_attention_equals_a_loop_over_heads_and_entities(inputs: int, dim: int, heads: int) -> None:
    layer = SelfAttention(inputs, dim, heads).double()
    x = torch.randn(3, 7, inputs, dtype=torch.double)
    present = torch.rand(3, 7) < 0.6
    present[:, 2] = True
    found = layer(x, present).detach().numpy()
    for row in range(3):
        expected = naive_attention(layer, x[row].numpy(), present[row].numpy())
        np.testing.assert_allclose(found[row], expected, atol=1e-12)


def test_a_layer_is_torchs_pre_norm_layer_without_biases_in_attention() -> None:
    attention = SelfAttention(8, 8, 2)
    ours = TransformerLayer(8, 8, attention, dropout=0.0).double()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, 0.0, batch_first=True, norm_first=True, dtype=torch.double
    )
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(attention.query_key_value.weight)
        theirs.self_attn.in_proj_bias.zero_()
        theirs.self_attn.out_proj.weight.copy_(attention.output.weight)
        theirs.self_attn.out_proj.bias.zero_()
        theirs.linear1.load_state_dict(ours.feedforward[0].state_dict())
        theirs.linear2.load_state_dict(ours.feedforward[2].state_dict())
    x = torch.randn(4, 5, 8, dtype=torch.double)
    present = torch.arange(5) < torch.tensor([[5], [3], [1], [4]])
    expected = theirs(x, src_key_padding_mask=~present)
    torch.testing.assert_close(ours(x, present)[present], expected[present])


def test_a_layer_that_changes_the_dimension_has_no_residual_in_attention() -> None:
    layer = TransformerLayer(3, 6, SelfAttention(3, 6, 2), dropout=0.0)
    x, present = torch.randn(2, 4, 3), torch.ones(2, 4, dtype=torch.bool)
    z = layer.attention(layer.before_attention(x), present)
    expected = z + layer.feedforward(layer.before_feedforward(z))
    torch.testing.assert_close(layer(x, present), expected)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooling_leaves_out_what_is_absent(pooling: str) -> None:
    nodes = torch.randn(3, 4, 5)
    present = torch.tensor([[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    found = pooled(nodes, present, pooling)
    for row in range(2):
        own = nodes[row][present[row]]
        vector = own.mean(dim=0) if pooling == "mean" else own.max(dim=0).values
        torch.testing.assert_close(found[row], vector / vector.norm())
    assert found[2].tolist() == [0.0] * 5


def word_encoder(stack: Stack = SMALL, length: int = 9) -> WordEncoder:
    return WordEncoder(nn.Embedding(20, 4, padding_idx=PADDING), length, stack)


@pytest.mark.parametrize("layer", ["transformer", "graph-attention", "relation", "gru"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_changes_nothing_and_gets_no_gradient(pooling: str, layer: str) -> None:
    net = word_encoder(Stack(6, 3, 2, 0.0, pooling, layer=layer)).eval()
    captions = [[7, 4, 9], [5], [], [6, 6, 8, 4, 11, 12, 5, 7, 4]]
    front, back = torch.zeros(2, 4, 9)
    for row, words in enumerate(captions):
        front[row, 9 - len(words) :] = torch.tensor(words)
        back[row, : len(words)] = torch.tensor(words)
    found = net(front)
    torch.testing.assert_close(net(back), found, rtol=0, atol=0)
    for row, words in enumerate(captions[:2]):
        torch.testing.assert_close(net(torch.tensor([words]).float())[0], found[row])
    assert found[2].tolist() == [0.0] * 6

    net(front[:2]).sum().backward()
    assert net.positions.grad is not None
    assert net.positions.grad[:3].abs().sum(dim=1).min() > 0
    assert net.positions.grad[3:].abs().max() == 0
    assert net.words.weight.grad is not None
    used = net.words.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert used == [4, 5, 7, 9]


def test_a_gru_layer_is_torchs_of_each_row_alone() -> None:
    layer = GruLayer(5, 8, dropout=0.0)
    x = torch.randn(4, 6, 5, requires_grad=True)
    present = torch.zeros(4, 6, dtype=torch.bool)
    for row, where in enumerate((slice(0, 6), slice(2, 5), slice(0, 1), slice(0, 0))):
        present[row, where] = True
    found = layer(x, present)
    assert found[~present].abs().max() == 0
    for row in range(3):
        expected, _ = layer.rnn(x[row, present[row]])
        torch.testing.assert_close(found[row, present[row]], expected)
    found.square().sum().backward()
    assert x.grad is not None
    assert (x.grad.abs().sum(dim=2) > 0).tolist() == present.tolist()


def test_words_move_as_one_within_the_longest_caption() -> None:
    ids = torch.tensor([[0, 0, 5, 6, 7], [0, 0, 0, 0, 8], [0, 0, 0, 0, 0]])
    assert moved(ids, torch.tensor([0, 0, 0])).tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert moved(ids, torch.tensor([0, 2, 3])).tolist() == [[5, 6, 7], [0, 0, 8], [0, 0, 0]]
    back = torch.tensor([[5, 6, 0, 0], [8, 9, 10, 0]])
    assert moved(back, torch.tensor([1, 0])).tolist() == [[0, 5, 6], [8, 9, 10]]
    assert moved(ids[2:], torch.tensor([0])).tolist() == [[0]]


def test_shifts_are_random_in_training_only_and_reach_every_place() -> None:
    net = word_encoder()
    rows = torch.tensor([[5.0, 0, 0, 0]] * 400 + [[4.0, 5, 6, 7]])
    _, present = net.train().nodes(rows)
    assert present.shape == (401, 4)
    assert present[:400].sum(dim=1).tolist() == [1] * 400
    assert present[:400].sum(dim=0).min() > 60
    torch.manual_seed(1)
    first = net(rows)
    torch.manual_seed(1)
    torch.testing.assert_close(net(rows), first, rtol=0, atol=0)
    assert net.eval().nodes(rows)[1][:400, 0].all()
    still = WordEncoder(net.words, 9, SMALL, shifted=False)
    assert still.train().nodes(rows)[1][:400, 0].all()


def test_word_order_and_cell_position_count() -> None:
    words, grid = word_encoder().eval(), GridEncoder(4, 3, SMALL).eval()
    there, back = words(torch.tensor([[4.0, 5, 6], [6.0, 5, 4]]))
    assert (there - back).abs().max() > 1e-4
    cells = torch.randn(1, 2, 2, 3)
    assert (grid(cells) - grid(cells.flip(1))).abs().max() > 1e-4
    torch.testing.assert_close(grid(cells), grid(cells.flatten(1, 2)))


def test_without_positions_words_and_cells_are_sets() -> None:
    unordered = replace(SMALL, positions=False)
    encoder, grid = word_encoder(unordered).eval(), GridEncoder(4, 3, unordered).eval()
    there, back = encoder(torch.tensor([[4.0, 5, 6], [6.0, 5, 4]]))
    torch.testing.assert_close(there, back)
    cells = torch.randn(1, 2, 2, 3)
    torch.testing.assert_close(grid(cells), grid(cells.flip(1)))
    assert not grid.positions.requires_grad
    assert not grid.positions.any()


@pytest.mark.parametrize("rows", [1, 3])
def test_pools_equal_a_loop_over_pools(rows: int) -> None:
    pools = Pools(2, 6).double()
    nodes = torch.randn(rows, 4, 6, dtype=torch.double)
    present = torch.rand(rows, 4) < 0.5
    present[0] = False
    found = pools(nodes, present).detach()
    assert found[0].abs().max() == 0
    for row in range(1, rows):
        own = nodes[row][present[row]]
        for pool in range(2):
            mean = (own @ pools.weights.weight[pool].detach()).softmax(dim=0) @ own
            torch.testing.assert_close(found[row, pool], F.normalize(mean, dim=0))


def test_heads_and_directions_must_share_the_dimension() -> None:
    with pytest.raises(HeadError, match="even dim, found 15; set an even number"):
        make_head(
            "relational",
            {"dim": 15, "attention_heads": 3, "layer": "gru"},
            inputs_of_parts(GRID, SEQUENCE),
        )
    with pytest.raises(HeadError, match="attention_heads 3 does not divide dim 16"):
        make_head("relational", {"dim": 16, "attention_heads": 3}, inputs_of_parts(GRID, SEQUENCE))


@pytest.mark.parametrize("loss", ["basic", "pooling", "cross-attention"])
def test_the_first_epochs_take_the_mean_hinge_of_all_negatives(loss: str) -> None:
    settings = RelationalSettings(
        loss=loss, dim=8, attention_heads=2, word_dim=4, mean_hinge_epochs=2
    )
    plan = task(settings, inputs_of_parts(GRID, SEQUENCE))
    net = plan.build(None)
    pairs = grid_pairs(4)
    batch = Batch(
        torch.from_numpy(pairs.images.take(np.arange(4))),
        torch.from_numpy(pairs.captions.take(np.arange(12))),
        torch.from_numpy(pairs.image_of_caption),
    )
    torch.manual_seed(1)  # the shift of the words
    with torch.no_grad():
        scores = net["image"](batch.images) @ net["caption"](batch.captions).T
    expected = 0.0
    for j, i in enumerate(pairs.image_of_caption):
        others = [v for v in range(4) if v != i]
        hinges = [0.2 + scores[v, j] - scores[i, j] for v in others]
        siblings = [k for k in range(12) if pairs.image_of_caption[k] != i]
        hinges += [0.2 + scores[i, k] - scores[i, j] for k in siblings]
        expected += sum(max(0.0, float(hinge)) for hinge in hinges) / 3
    losses = []
    for epoch in range(3):
        torch.manual_seed(1)
        losses.append(float(plan.loss(net, batch, epoch, torch.Generator()).detach()))
    assert losses[:2] == pytest.approx([expected] * 2, rel=1e-4)
    assert losses[2] != pytest.approx(expected, rel=1e-2)
