"""Images per second of a fine-tuning step, by trainable layers and precision.

    python -m bench.finetuning [--batch 32] [--steps 3] [--threads 2]

A step is a forward and a backward pass over random windows and an SGD update, without reading
images. `plain` is the same network and trainable layers in a plain loop: float32, channels first,
batch norms in training mode. Both alternate; figures are medians of wall time, or with one thread
of CPU time, which other programs affect less.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pipeline.heads.finetuning.network import LearningNetwork
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.recipes import resolve_recipe

FIRST_LAYERS = ("", "_blocks.5", "_blocks.11")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="efficientnet-lite0-pool")
    parser.add_argument("--first-layers", nargs="*", default=FIRST_LAYERS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = resolve_recipe(options.recipe)
    backbone = backbone_named(recipe.backbone)
    torch.manual_seed(0)
    state = backbone.build().state_dict()
    windows = torch.rand(options.batch, recipe.crop.size, recipe.crop.size, 3) * 255
    print("| layers that learn | precision | images/s | plain | ratio |\n|---|---|---:|---:|---:|")
    for first_layer in options.first_layers:
        for precision in ("float32", "bf16"):
            ours = LearningNetwork(recipe, backbone, state, first_layer, precision).train()
            theirs = backbone.build().train()
            for parameter, like in zip(theirs.parameters(), ours.parameters(), strict=True):
                parameter.requires_grad_(like.requires_grad)
            rates = side_by_side(
                [step_of(ours, windows), step_of(theirs, windows.permute(0, 3, 1, 2).contiguous())],
                options.batch,
                options.steps,
                time.process_time if options.threads == 1 else time.perf_counter,
            )
            layers = f"from `{first_layer}` on" if first_layer else "all"
            cells = " | ".join(f"{rate:.1f}" for rate in rates)
            print(f"| {layers} | {precision} | {cells} | {rates[0] / rates[1]:.2f} |", flush=True)


def step_of(network: nn.Module, windows: Tensor) -> Callable[[], object]:
    """Return one step of training on some windows."""
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(learning, lr=1e-6)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        network(windows).square().mean().backward()
        optimiser.step()

    return step


def side_by_side(
    steps: list[Callable[[], object]], images: int, times: int, clock: Callable[[], float]
) -> list[float]:
    """Return the images per second of each step; the first run of each is discarded."""
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(times + 1):
        for step, found in zip(steps, seconds, strict=True):
            start = clock()
            step()
            found.append(clock() - start)
    return [images / statistics.median(found[1:]) for found in seconds]


if __name__ == "__main__":
    main()
