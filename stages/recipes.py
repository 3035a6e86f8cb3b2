"""`pipeline recipes`: the image recipes, listed or one printed whole."""

import json

import click

from pipeline.recipes import RECIPES, resolve_recipe


@click.command()
@click.argument("name", required=False)
def recipes(name: str | None) -> None:
    """List the image recipes, or print all of one as JSON.

    \b
    Example:
      pipeline recipes resnet152-grid
    """
    if name is not None:
        recipe = resolve_recipe(name)
        values = {**recipe.to_json(), "imagenet_weights": recipe.weights}
        click.echo(json.dumps(values, indent=2, sort_keys=True))
        return
    width = max(map(len, RECIPES))
    click.echo(f"{'recipe':{width}}  {'shape':14}  {'bytes a row':>11}  imagenet weights")
    for recipe in RECIPES.values():
        shape = " x ".join(map(str, recipe.shape))
        click.echo(f"{recipe.name:{width}}  {shape:14}  {recipe.row_bytes:>11}  {recipe.weights}")
