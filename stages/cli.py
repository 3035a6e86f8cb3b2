"""The console script `pipeline`: a click group whose commands are imported on first use."""

import importlib

import click

from pipeline import __version__
from pipeline.store.families import FAMILIES, added, additions
from stages.command import Group
from stages.console import run

EVERYDAY = "Commands"
COMMANDS = {
    "prepare": "Read or draw captioned images into a dataset.",
    "extract": "Turn images into feature shards.",
    "vectors": "Store or train word vectors for a dataset's words.",
    "text": "Encode captions into feature shards.",
    "train": "Fit an experiment's head on the training split.",
    "embed": "Embed a split with a trained head.",
    "ensemble": "Average the similarities of several experiments.",
    "evaluate": "Compute Recall@K of an embedding file.",
    "export": "Export an experiment as torch or ONNX programs.",
    "run": "Compute whatever is missing, from a dataset to recall tables.",
    "init": "Write dvc.yaml and params.yaml for a new project.",
    "search": "Find the images or sentences nearest to a query.",
    "shards": "Describe, verify, index, convert, merge and share shards.",
    "list": "List names: experiments, recipes, encoders...; print a recipe.",
}
"""The commands of the core in the order of the data flow, with their lines in the help."""


class CommandGroup(Group):
    """Commands by module name, so that `pipeline --help` does not import torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names: those of the core, then those of the families."""
        return [*COMMANDS, *additions("COMMANDS", "stages")]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command's module and return its command of the same name."""
        command: click.Command | None = None
        if name in COMMANDS:
            command = getattr(importlib.import_module(f"stages.{name}"), name)
        elif name in additions("COMMANDS", "stages"):
            command = added("COMMANDS", name, "stages")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the tables of commands without importing any of them."""
        sections = {EVERYDAY: COMMANDS}
        for family in FAMILIES:
            module = importlib.import_module(f"stages.{family}.family")
            if helps := getattr(module, "HELP", None):
                sections[module.TITLE] = {**sections.get(module.TITLE, {}), **helps}
        for title, helps in sections.items():
            with formatter.section(title):
                formatter.write_dl(list(helps.items()))


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


if __name__ == "__main__":
    main()
