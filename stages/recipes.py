"""`pipeline recipes`: lists the recipes, or prints one in full."""

import json

import click

from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.store.hashing import recipe_hash
from stages.command import Answer
from stages.options import JSON


@click.command(cls=Answer)
@click.argument("name", required=False)
@click.option(
    "--weights",
    help="Weights for the recipe hash: imagenet (downloaded if necessary), a file or "
    "random:SEED.  [default: imagenet if available on this machine]",
)
@JSON
def recipes(name: str | None, weights: str | None, as_json: bool) -> None:
    """List the recipes, or print one image recipe as JSON, with its recipe hash.

    \b
    Examples:
      pipeline recipes
      pipeline recipes resnet152-grid --weights resnet152.pth
      pipeline recipes timm:resnet50-grid --weights random:0
    """
    if name is not None:
        click.echo(json.dumps(_described(resolve_recipe(name), weights), indent=2, sort_keys=True))
        return
    if weights is not None:
        raise click.UsageError("--weights determines the hash of one recipe; pass its name too")
    from stages.listing import print_table
    from stages.listing import recipes as rows_of_recipes

    rows = rows_of_recipes()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        print_table(rows)


def _described(recipe: Recipe, source: str | None) -> dict[str, object]:
    """Return the recipe as JSON values; its hash is null if the weights are missing."""
    # Here, since the list needs no torch.
    from pipeline.images.weights import are_here, load_weights

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
