"""`pipeline list`: the names that other commands accept, and recipes in full."""

import json

import click

from stages.command import Answer, flag, option
from stages.listing import (
    COLUMNS,
    LISTINGS,
    chosen_experiments,
    faults,
    layers,
    print_table,
    recipe_in_full,
)
from stages.options import JSON


@click.command("list", cls=Answer)
@click.argument("kind", type=click.Choice([*LISTINGS, "layers"]), metavar="KIND")
@click.argument("name", required=False)
@option(
    "--weights",
    "With the NAME of a recipe: weights for its hash, imagenet (downloaded if necessary), a "
    "file or random:SEED.  [default: imagenet if available on this machine]",
)
@option("--paper", "With experiments: all with this prefix, such as wang2016.", metavar="PREFIX")
@flag("--all", "With experiments: ablations too.", name="everything")
@JSON
def list(
    kind: str,
    name: str | None,
    weights: str | None,
    paper: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """List the names that other commands accept, or print one recipe with its hash.

    KIND is experiments, encoders, tokenizers, recipes, vectors, backbones, heads, or layers of a
    recipe or backbone, in the order of the network, with the shape of their output. Experiments are
    those of params.yaml and the variants that papers recommend, with the features that `pipeline
    run` computes for them.

    \b
    Examples:
      pipeline list experiments
      pipeline list experiments --paper wang2016
      pipeline list encoders --json
      pipeline list layers torchvision:resnet50
      pipeline list recipes resnet152-grid --weights resnet152.pth
    """
    if kind == "layers" and name is None:
        raise click.UsageError("name the recipe or backbone whose layers to list")
    if name is not None and kind != "layers":
        if kind != "recipes":
            raise click.UsageError(f"only recipes have a NAME to print; omit {name!r}")
        click.echo(json.dumps(recipe_in_full(name, weights), indent=2, sort_keys=True))
        return
    if weights is not None:
        raise click.UsageError("--weights determines the hash of one recipe; pass its name too")
    if (paper or everything) and kind != "experiments":
        raise click.UsageError("--paper and --all apply only to KIND experiments")
    for fault in faults(kind):
        click.echo(f"warning: {fault}", err=True)
    rows = LISTINGS[kind]() if name is None else layers(name)
    if kind == "experiments" and not everything:
        rows = chosen_experiments(rows, paper)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        print_table(rows, COLUMNS.get(kind))
