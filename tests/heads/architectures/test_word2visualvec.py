"""Word2VisualVec: its layers by hand, captions without padding, refusals, training."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.heads import HeadError
from pipeline.heads.architectures.word2visualvec import (
    LastState,
    SentenceVector,
    Word2VisualVecSettings,
    perceptron,
    require_targets,
    squared_error,
    task,
    words_of,
)
from pipeline.heads.base import FitOptions
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.batches import Batch
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import caption_blocks
from pipeline.heads.inputs.pairs import Pairs
from pipeline.text.encoders.token_ids import PADDING
from tests.heads.factories import (
    CHANNELS,
    COUNTS,
    SEQUENCE,
    VOCAB_SIZE,
    inputs_of_parts,
    vector_pairs,
)

SMALL = {"hidden": 32, "word_dim": 8, "hidden_size": 16, "batch_size": 25, "learning_rate": 3e-3}


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("layers", "sizes"), [(2, [5, 3]), (3, [5, 7, 3]), (4, [5, 7, 7, 3])])
def test_every_layer_is_linear_and_relu_with_dropout_between(layers: int, sizes: list[int]) -> None:
    net = perceptron(5, 7, 3, layers, 0.2)
    x = torch.randn(4, 5)
    linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == list(pairwise(sizes))
    expected = x
    for layer in linear:
        expected = torch.relu(expected @ layer.weight.T + layer.bias)
    torch.testing.assert_close(net.eval()(x), expected)
    dropouts = [module.p for module in net.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [0.2] * (layers - 2)


def test_the_last_state_is_that_after_the_last_word() -> None:
    net = LastState(nn.Embedding(20, 4), 6, 0.2).eval()
    cell = nn.GRUCell(4, 6)
    with torch.no_grad():
        for name, own in cell.named_parameters():
            own.copy_(net.gru.get_parameter(f"{name}_l0"))
    captions = [[5, 9, 4], [7], [], [4, 5, 6, 7, 8]]
    front, back = torch.zeros(2, 4, 6)
    for row, words in enumerate(captions):
        front[row, 6 - len(words) :] = torch.tensor(words)
        back[row, : len(words)] = torch.tensor(words)
    found = net(front)
    torch.testing.assert_close(net(back), found, rtol=0, atol=0)
    for row, words in enumerate(captions):
        state = torch.zeros(1, 6)
        for word in words:
            state = cell(net.words(torch.tensor([word])), state)
        torch.testing.assert_close(found[row : row + 1], state)
    found.sum().backward()
    assert net.words.weight.grad is not None
    used = net.words.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert used == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("parts", [(COUNTS,), (SEQUENCE,), (COUNTS, SEQUENCE), (SEQUENCE, COUNTS)])
def test_each_part_of_a_caption_goes_its_way(parts: tuple[dict[str, object], ...]) -> None:
    settings = Word2VisualVecSettings(word_dim=4, hidden_size=6)
    net = SentenceVector(
        caption_blocks(inputs_of_parts((CHANNELS,), *parts).captions), settings, None
    ).eval()
    rows = torch.randint(0, VOCAB_SIZE, (5, sum(int(str(part["dim"])) for part in parts))).float()
    found = net(rows)
    assert found.shape == (5, net.dim)
    column = place = 0
    for part, encoder in zip(parts, net.encoders, strict=True):
        own = rows[:, column : column + int(str(part["dim"]))]
        expected = encoder(own) if part is SEQUENCE else own
        torch.testing.assert_close(found[:, place : place + expected.shape[1]], expected)
        column, place = column + own.shape[1], place + expected.shape[1]


def test_words_start_from_their_vectors_or_between_minus_one_and_one() -> None:
    known = np.full((40, 3), np.nan, np.float32)
    known[7], known[20] = 5.0, -3.0
    for words in (known, None):
        table = words_of(40, 3, words)
        rows = table.weight.detach().numpy()
        assert table.weight.requires_grad
        assert rows[PADDING].tolist() == [0.0] * 3
        drawn = [row for row in range(1, 40) if words is None or row not in (7, 20)]
        assert 0.8 < np.abs(rows[drawn]).max() <= 1.0
        assert rows[drawn].min() < 0 < rows[drawn].max()
    np.testing.assert_array_equal(words_of(40, 3, known).weight.detach()[[7, 20]], known[[7, 20]])
    with pytest.raises(HeadError, match="word_dim"):
        words_of(40, 4, known)


def test_the_loss_is_the_mean_over_captions_and_dimensions_of_raw_features() -> None:
    net = nn.ModuleDict({"image": nn.Identity(), "caption": nn.Linear(4, 3)})
    images, captions, image_of_caption = (
        torch.randn(2, 3),
        torch.randn(5, 4),
        torch.tensor([0, 0, 1, 1, 1]),
    )
    found = squared_error(net, Batch(images, captions, image_of_caption), 0, torch.Generator())
    predicted = net["caption"](captions).detach().numpy()
    squares = [
        (predicted[j, d] - float(images[image_of_caption[j], d])) ** 2
        for j in range(5)
        for d in range(3)
    ]
    assert float(found.detach()) == pytest.approx(sum(squares) / 15, rel=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_the_marginal_ranking_loss_is_that_of_the_similarity(similarity: str) -> None:
    settings = Word2VisualVecSettings(loss="sum_of_hinges", margin=0.3, similarity=similarity)
    made = task(settings, inputs_of_parts((CHANNELS,), COUNTS))
    images, predicted = torch.rand(2, 8), torch.rand(3, 8)
    net = nn.ModuleDict({"image": nn.Identity(), "caption": nn.Identity()})
    batch = Batch(images, predicted, torch.tensor([0, 1, 1]))
    score = {
        "cosine": lambda i, c: torch.cosine_similarity(images[i], predicted[c], dim=0),
        "dot": lambda i, c: images[i] @ predicted[c],
        "euclidean": lambda i, c: -(images[i] - predicted[c]).square().sum(),
    }[similarity]
    expected = torch.zeros(())
    for caption, own in enumerate([0, 1, 1]):
        others = [c for c, image in enumerate([0, 1, 1]) if image != own]
        for other in [score(own, c) for c in others] + [score(1 - own, caption)]:
            expected = expected + (0.3 - score(own, caption) + other).clamp_min(0)
    assert made.similarity == similarity
    torch.testing.assert_close(made.loss(net, batch, 0, torch.Generator()), expected)


def test_weight_decay_adds_a_share_of_every_weight_to_its_gradient() -> None:
    """Torch's decay, not twice the share as the derivative of Keras's l2."""
    made = task(Word2VisualVecSettings(weight_decay=0.01), inputs_of_parts((CHANNELS,), SEQUENCE))
    net = made.build(None)
    before = [p.detach().clone() for p in net.parameters()]
    optimiser: Any = made.optimiser(net)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for parameter, weight in zip(net.parameters(), before, strict=True):
        mean_square = optimiser.state[parameter]["square_avg"]
        torch.testing.assert_close(mean_square, 0.1 * (0.01 * weight) ** 2)


def test_negative_targets_are_refused_by_the_first_image_that_has_one() -> None:
    pairs = vector_pairs(9, COUNTS)
    features = pairs.images.take(np.arange(9))
    features[[4, 7], 2] = -0.5, -0.25
    negative = Pairs(
        pairs.image_ids,
        pairs.caption_ids,
        pairs.image_of_caption,
        ArrayRows(features),
        pairs.captions,
    )
    require_targets(pairs)
    with pytest.raises(HeadError, match=r"image 0-4 has the feature value -0\.5"):
        require_targets(negative)
    head = make_head("word2visualvec", SMALL, inputs_of_parts((CHANNELS,), COUNTS))
    with pytest.raises(HeadError, match="ReLU"):
        head.fit(negative, pairs, FitOptions(seed=0))


def test_a_chunk_later_on_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.heads.inputs.feature_rows._BLOCK_BYTES", 4 * CHANNELS * 4)
    pairs = vector_pairs(9, COUNTS)
    features = pairs.images.take(np.arange(9))
    features[8] = -1.0
    rows = ArrayRows(features)
    with pytest.raises(HeadError, match="image 0-8 "):
        require_targets(
            Pairs(pairs.image_ids, pairs.caption_ids, pairs.image_of_caption, rows, pairs.captions)
        )
