"""The memory that an extraction announces."""

import subprocess
import sys

import pytest
import torch

from pipeline.images import memory
from pipeline.images.batches import Parallelism
from pipeline.images.memory import expected_memory
from pipeline.images.network import AT_ONCE, RecipeNetwork
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.store.builder.feature_build import WRITERS
from pipeline.store.builder.unfinished_shard import FLUSH_BYTES
from tests.project import PROJECT


def test_memory_grows_with_what_is_in_the_network_at_once() -> None:
    recipe = resolve_recipe("efficientnet-lite0-pool")
    network = RecipeNetwork(recipe, load_weights(recipe).state)
    one = expected_memory(network, Parallelism(batch_size=8, threads=1, readers=1))
    two = expected_memory(network, Parallelism(batch_size=8, threads=2, readers=1))
    large = expected_memory(network, Parallelism(batch_size=16, threads=1, readers=1))
    # Its largest map has 96 channels of 112 x 112.
    activations = 4 * 8 * 96 * 112**2 * 4
    windows = 8 * 3 * 224**2 + 8 * recipe.row_bytes
    assert two - one == activations + windows
    assert large - one == activations + 3 * windows


def test_a_gpu_fills_shards_faster_than_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = resolve_recipe("efficientnet-lite0-pool")
    network = RecipeNetwork(recipe, load_weights(recipe).state)
    monkeypatch.setattr(memory, "_largest_activation", lambda network: 1)
    parallelism = Parallelism(batch_size=8, threads=AT_ONCE, readers=1)
    on_cpu = expected_memory(network, parallelism)
    monkeypatch.setattr(network, "device", torch.device("cuda"))
    rows = (WRITERS + 1 - 2) * FLUSH_BYTES
    more = rows + parallelism.readers * memory._READING_PROCESS
    assert expected_memory(network, parallelism) - on_cpu == more


def test_the_estimate_does_not_import_the_compiler() -> None:
    """Its import took the CPU time of hundreds of images."""
    code = (
        "import sys; from tests.images import test_memory; "
        "test_memory.test_memory_grows_with_what_is_in_the_network_at_once(); "
        "print('torch._dynamo' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "False\n"
