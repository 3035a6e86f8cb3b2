"""One image recipe as JSON values, with its hash: `pipeline list recipes NAME`."""

import click

from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import are_here, load_weights
from pipeline.store.hashing import recipe_hash


def recipe_in_full(name: str, source: str | None) -> dict[str, object]:
    """Return a recipe as JSON values; its hash is null if the weights are missing."""
    recipe = resolve_recipe(name)
    values = recipe.to_json()
    described = {**values, "imagenet_weights": recipe.weights, "source": recipe.source}
    described["trained_on"] = recipe.trained_on
    if source is None and are_here(recipe):
        source = "imagenet"
    if source is None:
        click.echo(
            "the recipe hash depends on the weights, which are missing; pass --weights imagenet "
            "to download them, --weights PATH or --weights random:SEED",
            err=True,
        )
        return {**described, "recipe_hash": None}
    weights = load_weights(recipe, source)
    return {
        **described,
        "weights": weights.name,
        "weights_sha256": weights.sha256,
        "recipe_hash": recipe_hash(values, weights.sha256),
    }
