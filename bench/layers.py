"""Layers against a forward hook, and five in one pass: `python -m bench.layers [MODEL...]`.

For each model, with random weights and three random images: the largest difference of five layers'
rows from the output that a hook reads, relative to its largest value; whether they have the bytes
of one pass for each; and CPU seconds of one pass of all five, of the last layer alone, and of the
five one after the other, each the least of several in turn.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.transformers_models import MODELS as TRANSFORMERS
from bench.transformers_models import saved
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.layer_recipes import layer_outputs
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.tap import first_tensor
from pipeline.images.weights import load_weights

MODELS = (
    "torchvision:resnet50", "torchvision:vit_b_16", "resnet50-caffe-grid", "timm:resnet18",
    "timm:vit_tiny_patch16_224", "timm:convnext_atto", "open-clip:ViT-B-32", "open-clip:RN50",
    "transformers:ViT", "transformers:DINOv2",
)  # fmt: skip
LAYERS, IMAGES, REPEATS = 5, 3, 7


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(prog="bench.layers", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="[default: %(default)s]")
    parser.add_argument("--engine", default="fast", choices=["fast", "reference"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | largest difference | bytes | one pass | last alone | five passes | ratio |")
    print("|---|---|---|---|---|---|---|")
    for model in given.models:
        recipes = of_layers(model)
        state = load_weights(recipes[0], "random:0", None, recipes[1:]).state
        together = RecipeNetwork(recipes[0], dict(state), "cpu", given.engine, recipes[1:])
        windows = random_windows(together)
        worst = difference(together, recipes, dict(state), windows)
        alone = [RecipeNetwork(recipe, dict(state), "cpu", given.engine) for recipe in recipes]
        pairs = zip(together.every(windows), alone, strict=True)
        same = all(torch.equal(rows, one(windows)) for rows, one in pairs)
        every, *each = seconds([together, *alone], windows)
        print(
            f"| {model} | {worst:.1e} | {'same' if same else 'differ'} | {every:.2f} | "
            f"{each[-1]:.2f} | {sum(each):.2f} | {every / each[-1]:.2f} |",
            flush=True,
        )


def of_layers(model: str) -> list[Recipe]:
    """Return recipes of five layers with cells, spread over the network."""
    if (name := model.removeprefix("transformers:")) in TRANSFORMERS and name != model:
        model = f"transformers:{saved(Path(tempfile.mkdtemp()), name)}"
    recipe = resolve_recipe(model)
    named = layer_outputs(recipe, backbone_named(recipe.backbone))
    names = [name for name, shape in named if len(shape) > 1]
    at = [round(k * (len(names) - 1) / (LAYERS - 1)) for k in range(LAYERS)]
    return [resolve_recipe(f"{model}@{names[k]}") for k in at]


def random_windows(network: RecipeNetwork) -> Tensor:
    """Return windows of noise that the network accepts."""
    shape = (IMAGES, network.window.windows, network.window.size, network.window.size, 3)
    return torch.randint(
        0, 255, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def difference(
    network: RecipeNetwork, recipes: Sequence[Recipe], state: dict[str, Tensor], windows: Tensor
) -> float:
    """Return the largest difference of rows from the outputs that hooks read."""
    backbone = backbone_named(recipes[0].backbone)
    net, seen = backbone.filled(state).eval(), dict[str, Tensor]()

    def note(name: str) -> None:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            seen.setdefault(name, first_tensor(output).clone())

        net.get_submodule(name).register_forward_hook(hook)

    for recipe in recipes:
        note(recipe.tap)
    with torch.inference_mode():
        net(network.normalised(windows.flatten(0, 1)).contiguous())
    worst = 0.0
    for recipe, rows in zip(recipes, network.every(windows), strict=True):
        layout = backbone.layout(tuple(seen[recipe.tap].shape[1:]))
        output = seen[recipe.tap]
        if layout.kind == "tokens":
            output = output[:, sum(layout.prefix.values()) :]
        elif layout.kind == "maps":
            output = output.flatten(2).transpose(1, 2)
        expected = output.reshape(rows.shape)
        worst = max(worst, float((rows - expected).abs().max() / expected.abs().max()))
    return worst


def seconds(networks: Sequence[RecipeNetwork], windows: Tensor) -> list[float]:
    """Return the least CPU seconds of some passes of each network, in turn."""
    least = [float("inf")] * len(networks)
    for _ in range(REPEATS):
        for number, network in enumerate(networks):
            started = time.process_time()
            network.every(windows)
            least[number] = min(least[number], time.process_time() - started)
    return least


if __name__ == "__main__":
    main()
