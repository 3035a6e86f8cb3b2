"""The models against loops over the papers' equations, and their search against all sentences."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.heads.base import settings_from
from pipeline.heads.inputs.batches import Batch
from pipeline.language import LanguageError
from pipeline.language.captioning.generation import (
    Generated,
    beam_search,
    most_probable_words,
    sample,
)
from pipeline.language.language_task import SENTENCE, Sizes, build_model, language_task
from pipeline.language.model import SentenceModel
from pipeline.language.model_types import MODELS, LanguageSettings
from pipeline.language.presets import resolve_language_experiment
from pipeline.text.encoders.token_ids import END, PADDING, START, UNKNOWN

V, TAGS, DIM, CONTEXT, FORWARD, CELLS = 9, 8, 6, 3, 2, 4
SETTINGS = LanguageSettings(context=CONTEXT, forward=FORWARD, dim=5, factors=4, word_dim=5)
SENTENCES = torch.tensor([[2, 4, 5, 1, 8, 3, 0], [2, 7, 8, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0, 0]])
TAGGED = torch.tensor([[4, 5, 6, 7, 3, 0], [7, 1, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0]])


def model(name: str, scale: float = 0.6) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        built = build_model(name, SETTINGS, Sizes(V, 7, TAGS, DIM)).double().eval()
        for parameter in built.parameters():
            parameter.data.normal_(std=scale)
    return built


@torch.inference_mode()
def log_probabilities(
    net: SentenceModel, prefixes: Tensor, conditions: Tensor, tags: Tensor | None = None
) -> Tensor:
    """Return log P(next word), (sentences, V), after prefixes of one length, `START` first."""
    state = net.start(conditions, tags)
    for words in prefixes.unbind(dim=1):
        scores, state = net.step(state, words)
    return scores.log_softmax(dim=1)


def conditions(number: int, name: str = "") -> Tensor:
    shape = (number, CELLS, DIM) if name == "attention-decoder" else (number, DIM)
    drawn = torch.from_numpy(np.random.default_rng(number).standard_normal(shape))
    return drawn if name != "lbl" else drawn[:, :1]


def tags_for(name: str, tags: Tensor = TAGGED) -> Tensor | None:
    return tags if name == "sc-nlm" else None


def by_equations(name: str, net: Any, words: list[int], u: Tensor, tags: list[int]) -> list[float]:
    """Return log P(word) of all token ids after some words, number by number."""
    own: dict[str, Any] = {key: value.tolist() for key, value in net.state_dict().items()}
    at = len(words) - 1
    before = ([START] * CONTEXT + words)[-CONTEXT:]
    output, bias = own["words" if "words" in own else "context.words"], own["output.bias"]
    if name == "lstm-decoder":
        vector = lstm_by_equations(own, words, u.tolist())
    elif name == "attention-decoder":
        vector = attention_by_equations(own, words, u.tolist())
    else:
        if name in ("lbl", "additive-lbl"):
            table = output
        elif name == "tensor-lbl":
            table = output
            output = [affine(slices, u.tolist()) for slices in own["tensor"]]  # T^u
        else:
            folding = own["context.folding"]  # E = W_fk' W_fv
            table = [
                [sum(folding[f][k] * w[f] for f in range(4)) for k in range(5)] for w in output
            ]
        r = [0.0] * 5
        for matrix, word in zip(own["context.contexts"], before, strict=True):
            for k, row in enumerate(matrix):
                r[k] += sum(c * x for c, x in zip(row, table[word], strict=True))
        vector = r
        if name == "additive-lbl":
            shift = own["gate.of_content"]
            vector = [
                x + sum(w * y for w, y in zip(shift[k], u.tolist(), strict=True))
                for k, x in enumerate(r)
            ]
        elif name not in ("lbl", "tensor-lbl"):
            attribute = u.tolist()
            gate = own["gate.of_attribute" if name == "sc-nlm" else "gate.of_content"]
            if name == "sc-nlm":
                seen = (tags + [PADDING] * FORWARD)[at : at + FORWARD + 1]
                attribute = []
                for g in range(5):
                    total = own["gate.bias"][g]
                    total += sum(
                        c * x for c, x in zip(own["gate.content"][g], u.tolist(), strict=True)
                    )
                    for i, tag in enumerate(seen):
                        total += sum(
                            c * x
                            for c, x in zip(
                                own["gate.structure"][i][g], own["gate.tags"][tag], strict=True
                            )
                        )
                    attribute.append(max(0.0, total))
            vector = [
                sum(folding[f][k] * r[k] for k in range(5))
                * sum(w * x for w, x in zip(gate[f], attribute, strict=True))
                for f in range(4)
            ]
    scores = [
        -math.inf
        if word in (PADDING, START)
        else sum(a * b for a, b in zip(vector, w, strict=True)) + b
        for word, (w, b) in enumerate(zip(output, bias, strict=True))
    ]
    total = math.log(math.fsum(math.exp(score) for score in scores))
    return [score - total for score in scores]


def affine(matrix: list[list[float]], x: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]


def squash(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def added(*parts: list[float]) -> list[float]:
    return [sum(numbers) for numbers in zip(*parts, strict=True)]


def attention_by_equations(
    own: dict[str, Any], words: list[int], grid: list[list[float]]
) -> list[float]:
    def layer(name: str, x: list[float]) -> list[float]:
        weights = own[f"{name}.weight"]
        return added(affine(weights, x), own.get(f"{name}.bias", [0.0] * len(weights)))

    mean = [sum(cell[k] for cell in grid) / CELLS for k in range(DIM)]
    h = [math.tanh(x) for x in layer("first_state", mean)]
    c = [math.tanh(x) for x in layer("first_cell", mean)]
    for word in words:
        keys = [added(layer("cell_keys", cell), layer("state_keys", h)) for cell in grid]
        fits = affine([[math.tanh(x) for x in key] for key in keys], own["fit"])
        total = sum(math.exp(fit) for fit in fits)
        shares = [math.exp(fit) / total for fit in fits]
        beta = squash(layer("gate", h)[0])
        context = [beta * x for x in affine([*map(list, zip(*grid, strict=True))], shares)]
        read = own["inputs"][word]
        gates = added(layer("of_word", read), layer("of_state", h), layer("of_context", context))
        for n in range(5):
            kept = squash(gates[5 + n]) * c[n]
            c[n] = kept + squash(gates[n]) * math.tanh(gates[10 + n])
            h[n] = squash(gates[15 + n]) * math.tanh(c[n])
    return added(read, layer("out_state", h), layer("out_context", context))


def lstm_by_equations(own: dict[str, Any], words: list[int], u: list[float]) -> list[float]:
    first = [a + b for a, b in zip(affine(own["first.weight"], u), own["first.bias"], strict=True)]
    h, c, peep = [0.0] * 5, [0.0] * 5, own["lstm.peepholes"]
    for x in [first, *(own["inputs"][word] for word in words)]:
        gates = [
            a + b + bias
            for a, b, bias in zip(
                affine(own["lstm.word.weight"], x),
                affine(own["lstm.state.weight"], h),
                own["lstm.word.bias"],
                strict=True,
            )
        ]
        for n in range(5):
            i = squash(gates[n] + peep[0][n] * c[n])
            f = squash(gates[5 + n] + peep[1][n] * c[n])
            c[n] = f * c[n] + i * math.tanh(gates[10 + n])
            h[n] = squash(gates[15 + n] + peep[2][n] * c[n]) * math.tanh(c[n])
    return h


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_equal_the_equations_and_sum_to_one(name: str) -> None:
    net, u = model(name), conditions(3, name)
    tags = tags_for(name)
    vectors, targets = net.vectors(SENTENCES, u, tags)
    found = net.output.log_probabilities(vectors, net.words)
    assert torch.allclose(found.exp().sum(dim=1), torch.ones(len(found)).double())
    expected, words = [], []
    for row, sentence in enumerate(SENTENCES.tolist()):
        length = sentence.index(END) + 1
        for at in range(1, length):
            prefix = sentence[:at]
            by_loop = by_equations(name, net, prefix, u[row], TAGGED[row].tolist())
            one = None if tags is None else tags[row : row + 1]
            stepped = log_probabilities(net, torch.tensor([prefix]), u[row : row + 1], one)
            assert stepped[0].tolist() == pytest.approx(by_loop, rel=1e-9)
            expected.append(by_loop[sentence[at]])
            words.append(sentence[at])
    assert sorted(targets.tolist()) == sorted(words)
    got = found.gather(1, targets[:, None])[:, 0]
    assert sorted(got.tolist()) == pytest.approx(sorted(expected), rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name: str) -> None:
    net, u = model(name, scale=0.3).train(), conditions(3, name)
    parameters = [p for p in net.parameters() if p.requires_grad]

    def loss(*values: Tensor) -> Tensor:
        vectors, targets = net.vectors(SENTENCES, u, tags_for(name))
        total: Tensor = net.output.loss(vectors, net.words, targets)
        return total

    assert torch.autograd.gradcheck(loss, parameters, eps=1e-6, atol=1e-6, fast_mode=True)


def test_the_tensor_of_the_factors_is_the_factored_model() -> None:
    """Kiros et al. 2014, eq. (9): T^u = W_fv' diag(W_fd u) W_fk, and E = W_fk' W_fv."""
    factored, tensor, u = model("multiplicative-lbl"), model("tensor-lbl"), conditions(3)
    of_words, folding = factored.context.words, factored.context.folding
    factors = of_words, folding, factored.gate.of_content
    tensor.tensor.data = torch.einsum("vf,fk,fg->vkg", *factors)
    tensor.context.words.data = of_words @ folding
    tensor.context.contexts.data = factored.context.contexts.data
    tensor.output.bias.data = factored.output.bias.data
    for batch in (SENTENCES, SENTENCES[[1, 1, 0]]):
        found, expected = (
            net.output.log_probabilities(net.vectors(batch, u, None)[0], net.words)
            for net in (tensor, factored)
        )
        assert torch.allclose(found, expected, rtol=1e-9)
    shared = u[[0, 0, 0]]  # one condition of several sentences
    vectors, targets = tensor.vectors(SENTENCES, shared, None)
    own, _ = factored.vectors(SENTENCES, shared, None)
    assert torch.allclose(
        tensor.output.loss(vectors, tensor.words, targets),
        factored.output.loss(own, factored.words, targets),
    )
    assert beam_search(tensor, u, width=4).sentences.tolist() == (
        beam_search(factored, u, width=4).sentences.tolist()
    )


def test_a_tensor_that_is_too_large_or_sampled_is_refused() -> None:
    sizes = Sizes(2656, 7, 0, 300)
    with pytest.raises(LanguageError, match=r"2656 words x 300 x 300 has 239,040,000 .*67,108,864"):
        build_model("tensor-lbl", LanguageSettings(), sizes)
    small = resolve_language_experiment("kiros2014-mlbl-tensor").settings
    built = build_model("tensor-lbl", settings_from(LanguageSettings, small, "tensor-lbl"), sizes)
    assert sum(parameter.numel() for parameter in built.parameters()) == 12_795_232
    with pytest.raises(LanguageError, match="sampled_words is 5; set it to 0"):
        language_task("tensor-lbl", replace(SETTINGS, sampled_words=5), sizes)


def test_a_sampled_loss_is_near_the_full_one() -> None:
    net, generator = model("lbl", scale=0.3), torch.Generator().manual_seed(0)
    vectors, targets = net.vectors(SENTENCES, conditions(3, "lbl"), None)
    full = net.output.loss(vectors, net.words, targets)
    many = net.output.sampled_loss(vectors, net.words, targets, 200_000, generator)
    assert float(many.detach()) == pytest.approx(float(full.detach()), abs=0.01)


def every_sentence(net: Any, u: Tensor, words: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return all sentences of known words up to a length, the most probable first."""
    found = []
    for sentence in (s for n in range(words + 1) for s in product(range(4, V), repeat=n)):
        total, prefix = 0.0, [START]
        for word in (*sentence, END):
            total += float(log_probabilities(net, torch.tensor([prefix]), u)[0, word])
            prefix.append(word)
        found.append((total, sentence))
    return sorted(found, reverse=True)


def test_attention_of_a_word_sums_to_one_and_the_penalty_is_that_of_the_paper() -> None:
    name = "attention-decoder"
    net, u = model(name), conditions(3, name)
    _, targets, attention = net.attended(SENTENCES, u)
    words = (SENTENCES[:, 1:] != PADDING).sum(dim=1)
    assert sorted(attention.sum(dim=1).tolist()) == pytest.approx(sorted(words.tolist()))
    # The shortest sentence, of which only the end is predicted: the softmax at the start.
    grids = net._of_grids(u)
    fits = (grids["keys"][2] + net.state_keys(grids["state"][2])).tanh() @ net.fit
    assert torch.allclose(attention[2], fits.softmax(dim=0))
    settings = replace(SETTINGS, attention_penalty=0.7)
    rows = torch.cat([SENTENCES, torch.zeros(3, 6, dtype=torch.int64)], dim=1)
    batch, sizes = Batch(u, rows, torch.arange(3)), Sizes(V, 7, 0, DIM)
    losses = [
        language_task(name, s, sizes).loss(
            torch.nn.ModuleDict({SENTENCE: net}), batch, 0, torch.Generator()
        )
        for s in (SETTINGS, settings)
    ]
    expected = 0.7 * sum((1 - x) ** 2 for row in attention.tolist() for x in row) / len(targets)
    assert float((losses[1] - losses[0]).detach()) == pytest.approx(expected)


def beam_by_loops(net: Any, u: Tensor, width: int, longest: int) -> list[tuple[int, ...]]:
    """Return the sentences of a beam search that computes each hypothesis by itself."""
    beam = [(0.0, [START])]
    for place in range(longest + 1):
        further = [(total, words) for total, words in beam if words[-1] == END]
        for total, words in (entry for entry in beam if entry[1][-1] != END):
            log_p = log_probabilities(net, torch.tensor([words]), u)[0].tolist()
            allowed = [END] if place == longest else [END, *range(UNKNOWN + 1, V)]
            further += [(total + log_p[word], [*words, word]) for word in allowed if word != END]
            further.append((total + log_p[END], [*words, END]))
        beam = sorted(further, reverse=True)[:width]
    return [tuple(word for word in words[1:] if word >= 4) for _, words in beam]


@pytest.mark.parametrize(
    "name", ["tensor-lbl", "additive-lbl", "lstm-decoder", "attention-decoder"]
)
def test_a_beam_keeps_the_hypotheses_that_loops_keep(name: str) -> None:
    net, u = model(name), conditions(5, name)
    found = beam_search(net, u, width=3, longest=4)
    for row in range(5):
        assert words_of(found, row) == beam_by_loops(net, u[row : row + 1], 3, 4)


def test_the_most_probable_words_are_those_of_a_beam_of_one() -> None:
    net, u = model("sc-nlm"), conditions(4)
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(3))
    found = most_probable_words(net, u, TAGGED, pairs)
    beam = beam_search(net, u[pairs[:, 0]], TAGGED[pairs[:, 1]], width=1)
    assert torch.equal(found[:, : beam.sentences.shape[2]], beam.sentences[:, 0])
    assert (found[:, beam.sentences.shape[2] :] == PADDING).all()
    shared = beam_search(net, u, TAGGED, pairs, width=2)
    apart = beam_search(net, u[pairs[:, 0]], TAGGED[pairs[:, 1]], width=2)
    assert torch.equal(shared.sentences, apart.sentences)


@pytest.mark.parametrize("name", ["multiplicative-lbl", "lstm-decoder", "attention-decoder"])
def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_of_all_sentences(name: str) -> None:
    net, u = model(name), conditions(1, name)
    # Of one word each beginning stays in the beam.
    expected = every_sentence(net, u, 1)
    found = beam_search(net, u, width=V, longest=1)
    assert words_of(found)[: len(expected)] == [words for _, words in expected]
    assert found.log_probabilities[0, :6].tolist() == pytest.approx([p for p, _ in expected])
    wide = beam_search(net, u, width=V**2, longest=2)
    assert words_of(wide)[:10] == [words for _, words in every_sentence(net, u, 2)[:10]]


def words_of(found: Generated, row: int = 0) -> list[tuple[int, ...]]:
    return [tuple(w for w in s if w >= 4) for s in found.sentences[row].tolist()]


@pytest.mark.parametrize("name", ["sc-nlm", "lstm-decoder", "attention-decoder"])
def test_a_batch_writes_what_single_conditions_do(name: str) -> None:
    net, u = model(name), conditions(3, name)
    tags = tags_for(name)
    draws = torch.from_numpy(np.random.default_rng(0).random((3, 7)))
    searched = beam_search(net, u, tags, width=2, longest=6)
    drawn = sample(net, u, draws, tags)
    for row in range(3):
        own = None if tags is None else tags[row : row + 1]
        alone = beam_search(net, u[row : row + 1], own, width=2, longest=6)
        assert words_of(alone) == words_of(searched, row)
        total = alone.log_probabilities[0].tolist()
        assert total == pytest.approx(searched.log_probabilities[row].tolist())
        one = sample(net, u[row : row + 1], draws[row : row + 1], own)
        assert words_of(one) == words_of(drawn, row)
    if tags is not None:
        lengths = [len(found[0]) for found in (words_of(searched, row) for row in range(3))]
        assert lengths == [4, 2, 0]
    assert not (searched.sentences == UNKNOWN).any()


def test_drawn_words_are_as_frequent_as_probable() -> None:
    net, number = model("lstm-decoder"), 4000
    u = conditions(1).repeat(number, 1)
    draws = torch.from_numpy(np.random.default_rng(1).random((number, 2)))
    first = sample(net, u, draws).sentences[:, 0, 0]
    p = log_probabilities(net, torch.tensor([[START]]), u[:1])[0].exp()
    p[UNKNOWN] = 0
    shares = torch.bincount(first, minlength=V) / number
    assert shares.tolist() == pytest.approx((p / p.sum()).tolist(), abs=0.03)
