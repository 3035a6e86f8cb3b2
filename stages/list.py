"""`pipeline list`: the names that other commands accept."""

import json

import click

from stages.command import Answer
from stages.listing import LISTINGS, print_table
from stages.options import JSON


@click.command("list", cls=Answer)
@click.argument("kind", type=click.Choice([*LISTINGS]), metavar="KIND")
@JSON
def list(kind: str, as_json: bool) -> None:
    """List the names that other commands accept, with a description of each.

    KIND is experiments, encoders, tokenizers, recipes, vectors, backbones or heads.

    \b
    Examples:
      pipeline list experiments
      pipeline list encoders --json
    """
    rows = LISTINGS[kind]()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        print_table(rows)
