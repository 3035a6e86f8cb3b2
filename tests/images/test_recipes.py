"""The catalogue: names, defaults, and hashes that change with every field."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.images.recipes import (
    DEFAULT_RECIPE,
    RECIPES,
    Normalise,
    RecipeError,
    Resize,
    is_image_recipe,
    resolve_recipe,
)
from pipeline.store.errors import MissingPackage, UnknownName
from pipeline.store.hashing import canonical_json, recipe_hash
from stages.list import list as command
from tests.project import PROJECT


def test_backbones_stand_for_their_default_recipes() -> None:
    assert resolve_recipe("resnet152").name == "resnet152-grid"
    assert resolve_recipe("vgg19").name == "vgg19-fc7-10crop"
    assert resolve_recipe("efficientnet-lite0").name == "efficientnet-lite0-pool"
    assert {RECIPES[name].backbone for name in DEFAULT_RECIPE.values()} == set(DEFAULT_RECIPE)


def test_catalogue_is_consistent() -> None:
    assert list(RECIPES) == [recipe.name for recipe in RECIPES.values()]
    for recipe in RECIPES.values():
        assert recipe.name.startswith(f"{recipe.backbone}-")
        assert recipe.source
        assert recipe.crop.size <= recipe.resize.size
        assert (recipe.combine_crops == "mean") == (recipe.crop.windows > 1)
        assert recipe.name.endswith("-10crop") == (recipe.crop.rule == "ten")
        assert recipe.name.endswith("-flip") == (recipe.crop.rule == "flip")
        before = "fc7pre" in recipe.name or recipe.backbone == "dct"
        assert before == (recipe.activation == "none")
        assert len(recipe.axes.split(", ")) == len(recipe.shape) + 1
        assert resolve_recipe(recipe.name) == recipe
    assert RECIPES["resnet152-grid"].row_bytes == 401_408
    assert RECIPES["resnet152-grid14"].row_bytes == 1_605_632
    assert RECIPES["vgg19-fc7"].row_bytes == 16_384


# Recipes whose features differ from those of another one by these fields alone.
VARIANTS: dict[str, tuple[str, set[str]]] = {
    **{
        name: (name.replace("-caffe-", "-"), {"weights", "normalise"})
        for name in RECIPES
        if name.startswith("vgg") and "-caffe-" in name and "conv5" not in name
    },
    **{
        f"resnet152-v2-{tap}": (f"resnet152-{tap}", {"weights", "source"})
        for tap in ("grid", "grid14", "pool", "pool-10crop")
    },
    **{
        f"efficientnet-lite{number}-{tap}": (
            f"efficientnet-lite0-{tap}", {"backbone", "weights", "shape", "resize", "crop"},
        )
        for number in (1, 2)
        for tap in ("grid", "pool", "pool-flip", "pool-10crop")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_differ_in_their_fields_only(name: str) -> None:
    recipe, (other, names) = RECIPES[name], VARIANTS[name]
    given: dict[str, Any] = {field: getattr(recipe, field) for field in {"name", *names}}
    assert dataclasses.replace(RECIPES[other], **given) == recipe
    if "normalise" in names:
        oxford = Normalise(1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0), "BGR")
        assert recipe.normalise == oxford
    if "crop" in names:
        size = {"efficientnet-lite1": 240, "efficientnet-lite2": 260}[recipe.backbone]
        first = RECIPES[other]
        assert recipe.crop == dataclasses.replace(first.crop, size=size)
        canvas = size + 32 * name.endswith("10crop")
        assert recipe.resize == dataclasses.replace(first.resize, size=canvas)


def test_a_number_of_pixels_is_a_recipe_at_that_size() -> None:
    grid, fourteen = resolve_recipe("resnet152-grid-448"), RECIPES["resnet152-grid14"]
    same: dict[str, Any] = {"name": grid.name, "source": grid.source}
    assert dataclasses.replace(fourteen, **same) == grid
    ten = resolve_recipe("resnet50-caffe-pool-10crop-448", "bf16", "float16")
    assert (ten.resize.size, ten.crop.size, ten.crop.windows, ten.shape) == (512, 448, 10, (2048,))
    assert (ten.precision, ten.storage, ten.backbone) == ("bf16", "float16", "resnet50-caffe")
    assert resolve_recipe("googlenet-pool-448").resize == Resize("shorter-side", 512)
    for name, base in RECIPES.items():
        assert is_image_recipe(f"{name}-320") is is_image_recipe(name) is True
        if base.axes == "row, channel" and base.pool == "none":
            with pytest.raises(RecipeError, match="fully connected and has a fixed input size"):
                resolve_recipe(f"{name}-320")
            continue
        other = resolve_recipe(f"{name}-320")
        assert other.name == f"{name}-320"
        cells = 20 if "conv5" in name else 10
        assert other.shape[:-1] == 2 * (cells,) * (len(base.shape) == 3)
        hashes = {recipe_hash(recipe.to_json(), "0" * 64) for recipe in (base, other)}
        assert len(hashes) == 2
    assert not any(map(is_image_recipe, ("resnet152", "resnet152-448", "mine-448", "clip-9")))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet152-pool-225", "225 pixels are not a multiple of 32 from 64 to 2048"),
        ("resnet152-pool-32", "32 pixels are not a multiple"),
        ("resnet152-pool-99968", "99968 pixels are not a multiple of 32 from 64 to 2048"),
        ("resnet152-pool-224", "224 pixels is the size of resnet152-pool; use that name"),
        ("resnet152-pool-0448", "did you mean resnet152-pool"),
        ("resnet152-pool-448-320", "did you mean resnet152-pool"),
        ("resnet152-pol-448", "did you mean resnet152-pool"),
    ],
)
def test_sizes_that_no_network_has_are_refused(name: str, message: str) -> None:
    error = UnknownName if "did you mean" in message else RecipeError
    with pytest.raises(error, match=message):
        resolve_recipe(name)


def test_hashes_of_published_features_do_not_move() -> None:
    """Shards made with earlier releases name these."""
    found = {name: recipe_hash(RECIPES[name].to_json(), "0" * 64) for name in PUBLISHED}
    assert found == PUBLISHED


PUBLISHED = {
    "resnet152-grid": "592a3f593ce6d128",
    "resnet152-pool": "cb9489b59c53c2b9",
    "vgg19-fc7-10crop": "7e8840514a4d0dd5",
    "vgg19-fc7": "6ca3ebe5f5b8ea1b",
    "efficientnet-lite0-pool": "e2091fb80b08fec3",
    "efficientnet-lite0-grid": "f427d83a70f34de9",
    "resnet50-caffe-pool": "f8bc5548e5e643ae",
    "resnet50-caffe-grid": "80baea8f3d106fc3",
    "resnet50-caffe-pool-10crop": "60cb2fa69f9c57ba",
}


def test_models_of_timm_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPackage, match=r"pip install 'caption-feature-pipeline\[timm\]'"):
        resolve_recipe("timm:resnet18")


def test_the_hash_is_stable_over_time_and_key_order() -> None:
    values = RECIPES["resnet152-grid"].to_json()
    backwards = dict(reversed(list(values.items())))
    assert canonical_json(values) == canonical_json(backwards)
    assert recipe_hash({"a": [1, 2.5], "é": None}, "0" * 64) == "19269dfc2bf97de4"
    assert recipe_hash(values, "0" * 64) != recipe_hash(values, "1" * 64)


def test_the_list_needs_no_torch() -> None:
    """A list that takes seconds is not looked at."""
    code = (
        "import sys; from stages.list import list; list(['recipes'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    lines = ended.stdout.splitlines()
    of_images = lines[1 : 1 + len(RECIPES)]
    assert all(line.startswith(name) for line, name in zip(of_images, RECIPES, strict=True))
    for word in ("7 x 7 x 2048", "Yan 2019", "ResNet152_Weights.IMAGENET1K_V1"):
        assert word in lines[1]


def test_weights_are_of_one_named_recipe() -> None:
    assert CliRunner().invoke(command, ["recipes", "--weights", "random:0"]).exit_code == 2


def test_recipes_are_spelled_by_their_parts_in_any_order() -> None:
    assert resolve_recipe("vgg19/fc7/10crop/caffe") == RECIPES["vgg19-caffe-fc7-10crop"]
    assert resolve_recipe("resnet152/10crop/pool") == RECIPES["resnet152-pool-10crop"]
    assert resolve_recipe("resnet152/pool/448") == resolve_recipe("resnet152-pool-448")
    assert resolve_recipe("efficientnet-lite0/grid") == RECIPES["efficientnet-lite0-grid"]
    for name, recipe in RECIPES.items():
        # No two recipes have the same parts.
        assert resolve_recipe("/".join(sorted(name.split("-")))) == recipe
    with pytest.raises(UnknownName, match=r"has the parts 'vgg19/fc7/5crop'; those"):
        resolve_recipe("vgg19/fc7/5crop")
    with pytest.raises(UnknownName, match="did you mean vgg19"):
        resolve_recipe("vgg91/fc7")
