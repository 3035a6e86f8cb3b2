"""Graph attention and relation networks against loops over pairs of entities."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pipeline.heads.layers.relations import GraphAttention, Relations


@pytest.fixture
def entities() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    present = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    return torch.randn(3, 5, 4, dtype=torch.double), present


@pytest.mark.parametrize("heads", [1, 3])
def test_graph_attention_equals_a_loop(
    entities: tuple[torch.Tensor, torch.Tensor], heads: int
) -> None:
    x, present = entities
    layer = GraphAttention(4, 6, heads).double()
    found = layer(x, present).detach()
    size = 6 // heads
    for row in range(3):
        own = [j for j in range(5) if present[row, j]]
        for i in range(5):
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                h = (x[row] @ layer.transform.weight.T)[:, part].detach()
                a = layer.scores[:, head].detach()
                scores = [F.leaky_relu(torch.cat([h[i], h[j]]) @ a.flatten(), 0.2) for j in own]
                weights = torch.stack(scores).softmax(dim=0)
                expected = sum(weight * h[j] for weight, j in zip(weights, own, strict=True))
                torch.testing.assert_close(found[row, i, part], expected)


def test_relations_equal_a_loop_over_pairs(entities: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, present = entities
    layer = Relations(4, 6).double()
    found = layer(x, present).detach()
    both = torch.cat([layer.first.weight, layer.second.weight], dim=1)
    for row in range(3):
        own = [j for j in range(5) if present[row, j]]
        for i in range(5):
            pairs = [torch.cat([x[row, i], x[row, j]]) for j in own]
            g = [layer.output(F.relu(both @ pair + layer.first.bias)) for pair in pairs]
            torch.testing.assert_close(found[row, i], torch.stack(g).mean(dim=0).detach())


@pytest.mark.parametrize("layer", [GraphAttention(4, 6, 2), Relations(4, 6)])
def test_padding_gets_no_gradient_and_an_empty_row_is_finite(layer: nn.Module) -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    present = torch.tensor([[True, True, False], [False, False, False]])
    found = layer(x, present)
    assert np.isfinite(found.detach().numpy()).all()
    found[0, :2].sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum(dim=2)[0].gt(0).tolist() == [True, True, False]
