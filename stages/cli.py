"""The console script `pipeline`: a click group whose commands are imported on first use."""

import importlib

import click

from pipeline import __version__
from stages.command import Group
from stages.console import run

COMMANDS = {
    "prepare": "Read or draw captioned images into a dataset.",
    "propose": "Propose object boxes for the images of a dataset.",
    "extract": "Turn images into feature shards.",
    "vectors": "Store or train word vectors for a dataset's words.",
    "text": "Encode captions into feature shards.",
    "train": "Fit an experiment's head on the training split.",
    "embed": "Embed a split with a trained head.",
    "localize": "Train heads on regions and phrases, and localize phrases.",
    "caption": "Generate captions of images.",
    "rerank": "Rerank generated captions with a retrieval experiment.",
    "ensemble": "Average the similarities of several experiments.",
    "run": "Compute whatever is missing, from a dataset to recall tables.",
    "repro": "Run dvc.yaml's stages, with a line for each.",
    "evaluate": "Rank an embedding file and write its Recall@K.",
    "score": "Score generated captions against references.",
    "compare": "Test whether one system is better than another.",
    "probe": "Test what embeddings encode, also with wrong captions.",
    "report": "Join the recall tables of all experiments.",
    "duplicates": "Find near-duplicate images, within a set or between two.",
    "search": "Find the images or sentences nearest to a query.",
    "serve": "Search with an experiment on a local web page.",
    "shards": "Describe, verify, index, convert, merge and share shards.",
    "list": "List names: experiments, encoders, recipes, backbones...",
    "recipes": "List the recipes, or print one.",
}


class CommandGroup(Group):
    """Commands by module name, so that `pipeline --help` does not import torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the data flow."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command's module and return its command of the same name."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"stages.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=CommandGroup)
@click.version_option(__version__, prog_name="pipeline")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Features and embeddings of captioned images, with an id for every row.

    \b
    Example:
      pipeline prepare scenes --num-images 600 --seed 0 --out data/scenes
      pipeline extract --backbone efficientnet-lite0 --dataset data/scenes \\
          --out data/features/scenes/efficientnet-lite0-pool
    """
    if ctx.invoked_subcommand == "extract":
        # Here: to check params.yaml takes longer to import than all else that --help needs.
        from stages.params import extract_defaults

        ctx.default_map = {"extract": extract_defaults()}


def main() -> None:
    """Run the command line."""
    run(cli)
