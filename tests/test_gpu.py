"""A card computes what the processor does; GPU_TESTS_DEVICE=cpu tries these tests without one.

Tests of `card` also run on a pretended one, on which tensors of two devices do not mix either.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.heads.base import FitOptions
from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.engine.cudnn import CudnnLayers
from pipeline.images.engine.fuse import PlainLayers, rewrite
from pipeline.images.engine.ten_crops import share_ten_crops
from pipeline.images.extract import extract
from pipeline.images.recipes import Crop, resolve_recipe
from pipeline.images.transforms import crop_offsets
from pipeline.images.weights import load_weights
from pipeline.language.captioning.generation import beam_search, most_probable_words, sample
from pipeline.language.embed_by_likelihood import log_likelihoods
from pipeline.language.model_types import MODELS
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.ranking import on_device
from pipeline.retrieval.ranking.on_device import rank_on
from pipeline.retrieval.ranking.ranks import rank_both_ways
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.feature_set import FeatureSet
from tests.heads.test_conformance import KINDS
from tests.images.test_engines import HAZARDS, Hazards, Net, seeded, stack
from tests.language.test_models import SENTENCES, conditions, model, tags_for
from tests.pretended_card import pretended_card
from tests.retrieval.factories import made

RECIPE = "timm:test_resnet"
Rows = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def device() -> str:
    """The card, or the device that is named by the environment."""
    named = os.environ.get("GPU_TESTS_DEVICE", "cuda")
    if named == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return named


@pytest.fixture(params=["pretended", "real"])
def card(request: pytest.FixtureRequest) -> Iterator[str]:
    """A pretended card, and the device of the other tests."""
    if request.param == "real":
        yield request.getfixturevalue("device")
        return
    with pretended_card() as name:
        yield name


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Returns the features of ten images of several sizes, by device, precision and the rest."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        pixels = rng.integers(0, 256, (200 + 10 * number, 220, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")

    def extracted(out: str, precision: str = "float32", **compute: object) -> np.ndarray:
        how = Compute("random:0", precision=precision, batch_size=4, **compute)  # type: ignore[arg-type]
        extract(folder, tmp_path / out, recipe=RECIPE, compute=how)
        features = FeatureSet(tmp_path / out)
        return features.read(features.ids)

    return extracted


def test_features_are_those_of_the_processor(device: str, rows: Rows) -> None:
    here, there = rows("cpu", device="cpu"), rows("gpu", device=device)
    assert np.abs(there - here).max() < 1e-4 * np.abs(here).max()
    again = rows("again", device=device, threads=1, readers=1)
    np.testing.assert_array_equal(again, there)


@pytest.mark.parametrize(("precision", "error"), [("tf32", 5e-3), ("fp16", 1e-2), ("bf16", 5e-2)])
def test_narrow_arithmetic_is_near(device: str, rows: Rows, precision: str, error: float) -> None:
    if precision == "tf32" and device == "cpu":
        pytest.skip("needs a GPU")
    exact, narrow = rows("exact", device=device), rows("narrow", precision, device=device)
    assert np.linalg.norm(narrow - exact) < error * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", [*HAZARDS, "blocks"])
@torch.inference_mode()
def test_fused_layers_are_those_of_torch(device: str, kind: str) -> None:
    net = seeded(Net() if kind == "blocks" else Hazards(kind))
    channels, side = (3, 15) if kind == "blocks" else (8, 6)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, side, side, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    expected = net(x)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    fused = rewrite(net, CudnnLayers()).float().to(device)
    torch.testing.assert_close(fused(x.to(device)).cpu(), expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_shared_ten_crops_are_those_of_the_processor(device: str) -> None:
    plain = seeded(stack(3))
    offsets = crop_offsets(64, 64, Crop("ten", 48))
    canvases = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = []
    for layers, where in ((PlainLayers(), "cpu"), (CudnnLayers(), device)):
        shared = share_ten_crops(plain, offsets, 64, 48, layers)
        assert shared is not None
        found.append(shared.float().to(where)(canvases.to(where)).cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_processes_read_what_threads_read(
    device: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_threads = rows("threads", device=device)
    monkeypatch.setattr("pipeline.images.batches._WORTH_A_PROCESS", 1)
    np.testing.assert_array_equal(rows("processes", device=device, readers=3), by_threads)


def test_gradients_are_those_of_the_processor(device: str) -> None:
    recipe = resolve_recipe(RECIPE)
    backbone, state = backbone_named(recipe.backbone), load_weights(recipe, "random:0").state
    size = recipe.crop.size
    windows = torch.rand(2, size, size, 3, generator=torch.Generator().manual_seed(0)) * 255
    gradients = []
    for name in ("cpu", device):
        network = LearningNetwork(recipe, backbone, state).to(name).train()
        network(windows.to(name)).square().mean().backward()
        gradients.append([p.grad.cpu() for p in network.parameters() if p.grad is not None])
    for here, there in zip(*gradients, strict=True):
        torch.testing.assert_close(there, here, rtol=1e-2, atol=1e-3 * float(here.abs().max()))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_ranks_are_those_of_the_processor(
    card: str, similarity: str, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = made([5, 0, 7, 2, 3, 1], similarity, integers=ties)
    if ties:  # also of sets, and of absent vectors
        e.image_embeddings[1::3] = e.image_embeddings[0]
        e.caption_embeddings[::4] = 0.0
    expected = rank_both_ways(e)
    for elements in (7, 1000):
        monkeypatch.setattr(on_device, "BLOCK_ELEMENTS", elements)
        monkeypatch.setattr(on_device, "_SENT_NUMBERS", 10 * elements)
        for found, ranks in zip(rank_on(card)(e), expected, strict=True):
            np.testing.assert_array_equal(found, ranks)


def test_ranks_of_similarities_that_are_not_finite_are_refused(card: str) -> None:
    e = made([2, 1, 3], "dot")
    e.image_embeddings[1], e.caption_embeddings[:] = 3e38, 3e38
    with pytest.raises(EmbeddingsError, match=r"not a finite float32 .* \(up to 3e\+38\)"):
        rank_on(card)(e)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_learn_and_embed(card: str, kind: str) -> None:
    case = KINDS[kind]
    head = case.head(**({"epochs": 2} if case.is_trained else {}))
    pairs = case.pairs(24)
    history = head.fit(pairs, case.pairs(12, seed=1), FitOptions(0, device=card))
    assert all(np.isfinite(value) for entry in history for value in entry.values())
    here = case.head()
    here.restore({name: tensor.cpu() for name, tensor in head.tensors().items()})
    for side in ("images", "captions"):
        there, expected = (
            getattr(one, f"embed_{side}")(getattr(pairs, side)) for one in (head, here)
        )
        np.testing.assert_allclose(there, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_sentences_are_those_of_the_processor(card: str, name: str) -> None:
    net, tags = model(name), tags_for(name)
    given = conditions(3, name)
    if not net.condition_dim:
        given = torch.zeros(3, 0, dtype=torch.float64)
    draws = torch.from_numpy(np.random.default_rng(0).random((3, 7)))
    ids = SENTENCES.numpy()
    tag_ids = None if tags is None else tags.numpy()
    results = []
    for where in ("cpu", card):
        net, rows = net.to(where), given.to(where)
        asked = None if tags is None else tags.to(where)
        found = beam_search(net, rows, asked, width=3, longest=6)
        drawn = sample(net, rows, draws, asked)
        # Sentences of one probability may have either order.
        scores = found.log_probabilities
        gaps = (scores[:, :, None] - scores[:, None]).abs() + torch.eye(3, device=scores.device)
        apart = (gaps.amin(2) > 1e-5)[..., None]
        words = [found.sentences * apart, scores, drawn.sentences]
        if asked is not None:
            words.append(most_probable_words(net, rows, asked))
        likelihoods = log_likelihoods(net, given.numpy(), ids, tag_ids, device=torch.device(where))
        results.append([*(tensor.cpu().numpy() for tensor in words), likelihoods])
    for here, there in zip(*results, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-6)
