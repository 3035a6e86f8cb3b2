"""The memory that an extraction announces."""

from pipeline.images.batches import Parallelism
from pipeline.images.memory import expected_memory
from pipeline.images.network import RecipeNetwork
from pipeline.images.weights import load_weights
from pipeline.recipes import resolve_recipe


def test_memory_grows_with_what_is_in_the_network_at_once() -> None:
    recipe = resolve_recipe("efficientnet-lite0-pool")
    network = RecipeNetwork(recipe, load_weights(recipe).state)
    one = expected_memory(network, Parallelism(batch_size=8, threads=1, readers=1))
    two = expected_memory(network, Parallelism(batch_size=8, threads=2, readers=1))
    large = expected_memory(network, Parallelism(batch_size=16, threads=1, readers=1))
    # Its largest map has 96 channels of 112 x 112, padded for a stride of 2.
    activations = 3 * 8 * 96 * 113**2 * 4
    windows = 8 * 3 * 224**2 + 8 * recipe.row_bytes
    assert two - one == activations + windows
    assert large - one == activations + 3 * windows
