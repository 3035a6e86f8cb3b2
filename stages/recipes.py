"""`pipeline recipes`: the image recipes, listed or one printed whole."""

import json

import click

from pipeline.hashing import recipe_hash
from pipeline.recipes import RECIPES, Recipe, resolve_recipe


@click.command()
@click.argument("name", required=False)
@click.option(
    "--weights",
    help="Weights of the recipe hash: imagenet (downloaded if need be), a file or random:SEED."
    "  [default: imagenet where they are here already]",
)
def recipes(name: str | None, weights: str | None) -> None:
    """List the image recipes, or print all of one as JSON with its recipe hash.

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
        raise click.UsageError("--weights is for the hash of one recipe; give its name too")
    table = [("recipe", "shape", "bytes a row", "source", "imagenet weights")]
    table += [
        (r.name, " x ".join(map(str, r.shape)), str(r.row_bytes), r.source, r.weights)
        for r in RECIPES.values()
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [
            cell.rjust(width) if column == 2 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def _described(recipe: Recipe, source: str | None) -> dict[str, object]:
    """Return the recipe as JSON values; its hash is None where the weights are not here."""
    # Here, since the list needs no torch.
    from pipeline.images.weights import are_here, load_weights

    values = recipe.to_json()
    described = {**values, "imagenet_weights": recipe.weights, "source": recipe.source}
    described["trained_on"] = recipe.trained_on
    if source is None and are_here(recipe):
        source = "imagenet"
    if source is None:
        click.echo(
            "the recipe hash depends on the weights, which are not here; give --weights imagenet "
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
