"""The catalogue: names, defaults, and hashes that change with every field."""

import dataclasses
import json
from typing import Any

import pytest

from pipeline.canonical import canonical_json, recipe_hash
from pipeline.recipes import DEFAULT_RECIPE, RECIPES, RecipeError, resolve_recipe


def test_backbones_stand_for_their_default_recipes() -> None:
    assert resolve_recipe("resnet152").name == "resnet152-grid"
    assert resolve_recipe("vgg19").name == "vgg19-fc7-10crop"
    assert resolve_recipe("efficientnet-lite0").name == "efficientnet-lite0-pool"
    assert {RECIPES[name].backbone for name in DEFAULT_RECIPE.values()} == set(DEFAULT_RECIPE)


def test_near_names_are_offered() -> None:
    with pytest.raises(RecipeError, match="did you mean resnet152"):
        resolve_recipe("resnet152-gird")
    with pytest.raises(RecipeError, match="float64"):
        resolve_recipe("resnet152", storage="float64")


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {prefix: values}
    return {
        k: v for key, value in values.items() for k, v in _flat(value, f"{prefix}.{key}").items()
    }


def test_every_field_changes_the_hash() -> None:
    values = RECIPES["vgg19-fc7-10crop"].to_json()
    seen = {recipe_hash(values, "0" * 64), recipe_hash(values, "1" * 64)}
    fields = _flat(values)
    for path in fields:
        changed = json.loads(json.dumps(values))
        inner = changed
        *parents, last = path.strip(".").split(".")
        for parent in parents:
            inner = inner[parent]
        inner[last] = "another value"
        seen.add(recipe_hash(changed, "0" * 64))
    assert len(seen) == len(fields) + 2
    names = {f.name for f in dataclasses.fields(RECIPES["vgg19-fc7-10crop"])}
    assert set(values) == names - {"weights"}, "the weights in use stand beside the recipe"


def test_the_hash_is_stable_over_time_and_key_order() -> None:
    values = RECIPES["resnet152-grid"].to_json()
    backwards = dict(reversed(list(values.items())))
    assert canonical_json(values) == canonical_json(backwards)
    assert recipe_hash({"a": [1, 2.5], "é": None}, "0" * 64) == "19269dfc2bf97de4"
