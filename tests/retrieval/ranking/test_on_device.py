"""Ranks by torch, on its own "cpu" device, against those by numpy; devices that cannot be used."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.ranking import on_device
from pipeline.retrieval.ranking.blocks import HostBlock
from pipeline.retrieval.ranking.on_device import DeviceBlock, rank_on
from pipeline.retrieval.ranking.ranks import rank_both_ways
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.retrieval.torch_scores import SCORES
from pipeline.store.devices import DeviceError
from pipeline.store.errors import UnknownName
from stages.evaluate import evaluate as command
from tests.project import PROJECT
from tests.retrieval.factories import SETS, made


def device_block(similarity: str, images: np.ndarray, captions: np.ndarray) -> DeviceBlock:
    return DeviceBlock.of(similarity, torch.from_numpy(images), torch.from_numpy(captions))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarities_equal_numpys_from_the_shortest_vector_to_long_ones(similarity: str) -> None:
    e = made([3, 1, 2, 4], similarity)
    for scale in (1e-30, 1e-13, 1.0, 1e15):
        sides = e.image_embeddings * np.float32(scale), e.caption_embeddings * np.float32(scale)
        expected = HostBlock.of(similarity, *sides).scores
        found = device_block(similarity, *sides).scores.numpy()
        assert found.dtype == np.float32
        assert np.allclose(found, expected, rtol=3e-7, atol=0)


def test_what_cancels_is_zero_on_a_device_too() -> None:
    halves = np.random.default_rng(0).standard_normal((2, 40, 17)).astype(np.float32)
    images = np.concatenate([halves[0], halves[1]], axis=1)
    across = np.concatenate([halves[1], -halves[0]], axis=1)
    right_angles = device_block("cosine", images, across).scores.numpy()
    assert not right_angles.diagonal().any()
    assert (SCORES["cosine"](*map(torch.from_numpy, (images, across))).diagonal() != 0).any()
    at_home = device_block("euclidean", images * 1000, images * 1000).scores.numpy()
    assert not at_home.diagonal().any()
    assert np.count_nonzero(at_home) == 40 * 39


@pytest.mark.parametrize("similarity", ["dot", "order", *SETS[:1]])
def test_blocks_are_bounded_and_smaller_for_sets(
    similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = made([5, 1, 7, 2, 3, 1] * 4, similarity)
    shapes: list[tuple[int, int]] = []

    def watched(images: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        shapes.append((len(images), len(captions)))
        return SCORES["order"](images.flatten(1), captions.flatten(1))

    monkeypatch.setattr(on_device, "SCORES", {similarity: watched})
    monkeypatch.setattr(on_device, "BLOCK_ELEMENTS", 400)
    rank_on("cpu")(e)
    assert sum(n * m for n, m in shapes) == len(e.image_ids) * len(e.caption_ids)
    largest = max(n * m for n, m in shapes)
    assert 50 < largest <= (100 if similarity in SETS else 400)


def test_rows_may_be_read_only_and_stand_backwards() -> None:
    e = made([2, 3, 1], "cosine")
    e.image_embeddings.setflags(write=False)
    for rows in (e.image_embeddings, e.image_embeddings[::-1]):
        asked = replace(e, image_embeddings=rows)
        for found, expected in zip(rank_on("cpu")(asked), rank_both_ways(asked), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UnknownName, match="no device is called 'abacus'"):
        rank_on("abacus")


def test_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(*shape: int, **how: object) -> torch.Tensor:
        raise TypeError("Cannot convert to float64")

    monkeypatch.setattr(on_device, "usable_device", torch.device)
    monkeypatch.setattr(torch, "zeros", narrow)
    with pytest.raises(DeviceError, match=r"'mps' has no float64 \(Cannot .* use device 'cpu'"):
        rank_on("mps")


def test_a_device_with_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(images: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("Tried to allocate 1 GiB\nof 0")

    monkeypatch.setattr(on_device, "SCORES", {"dot": greedy})
    with pytest.raises(DeviceError, match=r"too little memory .* \(Tried to allocate 1 GiB\)"):
        rank_on("cpu")(made([2], "dot"))


def test_the_command_writes_the_same_bytes(tmp_path: Path) -> None:
    file = tmp_path / "e.h5"
    write_embeddings(file, made([5] * 8, "order"))

    def run(*options: str) -> tuple[int, dict[str, bytes]]:
        out = tmp_path / "-".join(("out", *options))
        ended = CliRunner().invoke(command, [str(file), "--out", str(out), *options])
        return ended.exit_code, {p.name: p.read_bytes() for p in out.glob("*")}

    # torch's name of the processor; "cpu" alone means numpy.
    assert run("--device", "cpu:0") == run("--device", "cpu") == run()
    by_protocol = run("--protocol", "first-5", "--device", "cpu:0")
    assert by_protocol == run("--protocol", "first-5")
    assert by_protocol[0] == 0
    assert run("--device", "abacus") == (1, {})


def test_torch_is_not_imported_for_the_processor(tmp_path: Path) -> None:
    file = tmp_path / "e.h5"
    write_embeddings(file, made([2, 1], "cosine"))
    program = (
        "import sys; from stages.evaluate import evaluate; "
        f"evaluate([{str(file)!r}, '--out', {str(tmp_path / 'out')!r}], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    project = PROJECT
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, cwd=project)
