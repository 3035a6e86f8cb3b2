"""The options of `extract`, `text` and `embed` that say where the work is done."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from stages.console import OUTPUT

Command = TypeVar("Command", bound=Callable[..., Any])


class _Resource(click.ParamType):
    name = "NAME=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        found = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", str(value))
        if found is None or not float(found[2]):
            self.fail(f"{value!r} is no resource; write it as in GPU=1", param, ctx)
        return found[1], float(found[2])


def _as_mapping(ctx: click.Context, param: click.Parameter, value: Any) -> dict[str, float]:
    return dict(value)


def cluster_options(command: Command) -> Command:
    """Add --workers, --scheduler, --resource (as `resources`, a mapping) and --summary."""
    for option in (
        click.option("--summary", type=OUTPUT, help="JSON file of counts, rates and seconds."),
        click.option(
            "--resource",
            "resources",
            type=_Resource(),
            multiple=True,
            callback=_as_mapping,
            help="With --scheduler: what a task needs of its worker.  [default: GPU=1 with "
            "--device cuda]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Work on the workers of this Dask scheduler, such as tcp://host:8786.",
        ),
        click.option(
            "--workers", type=click.IntRange(1), help="Work in N processes of this machine."
        ),
    ):
        command = option(command)
    return command
