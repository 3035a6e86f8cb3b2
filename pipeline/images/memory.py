"""Estimate of the memory of an extraction before it starts."""

import resource
from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.images.batches import BATCHES_AHEAD, Parallelism
from pipeline.images.network import AT_ONCE, RecipeNetwork
from pipeline.store.builder.feature_build import WRITERS
from pipeline.store.builder.unfinished_shard import FLUSH_BYTES

# Tensors of the size of the largest activation that are alive at once: a layer's input, its
# output, the shortcut or the bands, and the strips of shared crops.
_ALIVE = 4
# A typical photo of 12 million pixels during decoding and resizing, in bytes per pixel.
_PHOTO, _BYTES_A_PIXEL = 12_000_000, 6
# A process that reads, with the compiler of the resize; in this process, the compiler alone.
_READING_PROCESS, _COMPILER = 190_000_000, 145_000_000


def expected_memory(network: RecipeNetwork, parallelism: Parallelism) -> int:
    """Estimate the memory of an extraction in bytes, in addition to the loaded network."""
    # Rarely exceeded. Weights count again, since packed layouts are a second copy; finished rows
    # wait for the disk, for a GPU's in one shard more than are written at once; images beyond
    # `_PHOTO` pixels need more.
    recipe = network.recipe
    count = parallelism.batch_size * network.window.windows
    windows = count * 3 * network.window.size**2
    waiting = (parallelism.threads + BATCHES_AHEAD) * (
        windows + parallelism.batch_size * recipe.row_bytes
    )
    width = 2 if recipe.precision in ("bf16", "fp16") else 4
    activations = _ALIVE * count * _largest_activation(network) * width
    weights = sum(tensor.numel() for tensor in network.tensors()) * width
    cpu = network.device.type == "cpu"
    reading = parallelism.readers * (_PHOTO * _BYTES_A_PIXEL + (0 if cpu else _READING_PROCESS))
    at_once, shards = (parallelism.threads, 2) if cpu else (AT_ONCE, WRITERS + 1)
    rows = len(network.recipes) * shards * FLUSH_BYTES
    return weights + at_once * activations + waiting + rows + reading + _COMPILER


def resident_memory() -> int:
    """Return the resident memory of this process in bytes; where unknown, its maximum."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def _largest_activation(network: RecipeNetwork) -> int:
    """Return the element count of the largest activation of a window, from a run on a blank one."""
    # On torch's meta device nothing would be computed, but the first run imports torch's compiler,
    # which takes seconds.
    largest = 0

    def note(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, Tensor):
            largest = max(largest, output.numel())

    hooks = [module.register_forward_hook(note) for module in network.modules()]
    size = network.window.size
    network(torch.zeros(1, 1, size, size, 3, dtype=torch.uint8))
    for hook in hooks:
        hook.remove()
    return largest
