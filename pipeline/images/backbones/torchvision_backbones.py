"""Any classification network of torchvision as a recipe, "torchvision:<model>[.<weights>]".

The image is that of the weights' own transforms, and the row is what their classifier reads.
"""

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone, Library, outline_of
from pipeline.images.layer_recipes import at_layer
from pipeline.images.recipes.layers import ROW_AXES, LayerName, layout_of
from pipeline.images.recipes.schema import Crop, Normalise, Recipe, RecipeError, Resize
from pipeline.store.errors import UnknownName
from pipeline.store.wording import did_you_mean

_PREFIX = "torchvision:"
# Published weights of these two expect other values of pixels, which the network computes from the
# usual ones. Their auxiliary classifiers are for training.
_OPTIONS = {
    name: {"transform_input": True, "aux_logits": False, "init_weights": False}
    for name in ("googlenet", "inception_v3")
}
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
# Names in published files that the networks themselves rename while they load them.
_RENAMED = (
    (re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\."), r"\1\2."),
    (re.compile(r"mlp\.linear_1\."), "mlp.0."),
    (re.compile(r"mlp\.linear_2\."), "mlp.3."),
)


def torchvision_network(
    name: str, package: str = "torchvision.models", **options: Any
) -> Callable[[], nn.Module]:
    """Return the function that builds a network of torchvision without weights."""

    def build() -> nn.Module:
        # Imported here: torchvision imports torch's compiler, which is slower than torch itself.
        net: nn.Module = getattr(import_module(package), name)(weights=None, **options)
        return net

    return build


def torchvision_recipe(name: str) -> Recipe:
    """Return the recipe of a network of torchvision, with the transforms of its weights.

    `name` is "torchvision:<model>[.<weights>][-<pool>][@<layer>]", with a model of
    `torchvision.models.list_models(torchvision.models)` and its default weights, or those of a name
    such as IMAGENET1K_V1. Without a layer: the row before the last fully connected layer.
    """
    parts = LayerName.parse(name)
    if parts is None or (parts.pool and not parts.layer):
        raise RecipeError(
            f"cannot parse {name!r}; expected torchvision:<model> or torchvision:<model>.<weights>,"
            " or with [-<pool>]@<layer>, such as torchvision:resnet50-pool@layer3"
        )
    model, weights = _weights(parts.base)
    transforms = weights.transforms()
    backbone = f"{_PREFIX}{model}.{weights.name}"
    swag = "SWAG" in weights.name
    base = Recipe(
        name=backbone, backbone=backbone, weights=f"torchvision:{weights}",
        resize=Resize("shorter-side", transforms.resize_size[0], transforms.interpolation.value),
        crop=Crop("centre", transforms.crop_size[0]),
        normalise=Normalise(255.0, tuple(transforms.mean), tuple(transforms.std)),
        tap="pre_logits", activation="none", pool="none", combine_crops="none", shape=(1,),
        axes=ROW_AXES, source="torchvision's evaluation",
        trained_on=("Instagram", "ImageNet-1k") if swag else ("ImageNet-1k",),
    )  # fmt: skip
    # The name has the weights, also if they were left out: should a later torchvision have others
    # as its default, the same name still means the same features.
    named = parts._replace(base=backbone)
    return at_layer(base, named, torchvision_backbone(backbone), "pre_logits")


def torchvision_backbone(name: str) -> Backbone:
    """Return the network "torchvision:<model>.<weights>", without its last layer."""
    model, weights = _weights(name)
    options: dict[str, Any] = {**_OPTIONS.get(model, {})}
    if model.startswith("vit_"):
        options["image_size"] = weights.transforms().crop_size[0]
    whole = torchvision_network(model, **options)

    def build() -> nn.Module:
        net = whole()
        net.set_submodule(classifier, nn.Identity())
        return net

    classifier = _classifier(outline_of(whole))
    tokens = {"class": 1} if model.startswith("vit_") else {}
    return Backbone(
        build,
        methods={"pre_logits": "forward"},
        heads=(f"{classifier}.", *_AUXILIARY),
        merge=_renamed,
        layout=partial(layout_of, prefix=tokens, channels_last=model.startswith("swin")),
        tested=False,
    )


def _classifier(net: nn.Module) -> str:
    """Return the name of the last layer with weights, from features to classes."""
    kinds = (nn.Linear, nn.Conv2d)
    return [name for name, layer in net.named_modules() if isinstance(layer, kinds)][-1]


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by the names of today's networks."""
    for pattern, new in _RENAMED:
        tensors = {pattern.sub(new, name): tensor for name, tensor in tensors.items()}
    return tensors


def _weights(name: str) -> tuple[str, Any]:
    """Return the model of a name, and its published weights."""
    models = import_module("torchvision.models")
    model, _, wanted = name.removeprefix(_PREFIX).partition(".")
    names = models.list_models(models)
    if model not in names:
        version = import_module("torchvision").__version__
        hint = did_you_mean(model, names)
        raise UnknownName(f"torchvision {version} has no model {model!r}; {hint}")
    published = models.get_model_weights(model)
    if not wanted:
        return model, published.DEFAULT
    if wanted not in published.__members__:
        hint = did_you_mean(wanted, published.__members__)
        raise UnknownName(f"{_PREFIX}{model} has no weights {wanted!r}; {hint}")
    return model, published[wanted]


PROVIDER = Library(torchvision_recipe, torchvision_backbone)
