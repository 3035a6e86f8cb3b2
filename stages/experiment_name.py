"""The name of an experiment on a command line, or a YAML file in its place."""

import re
from pathlib import Path
from typing import Any

import click


class _Experiment(click.ParamType):
    """NAME, or a YAML file with one experiment, which is called by its stem; either @RECIPE."""

    name = "name"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if (match := re.fullmatch(r"(.+\.ya?ml)(@.*)?", value, re.DOTALL)) is None:
            return str(value)
        file = Path(match[1])
        if file != (other := given_files().setdefault(file.stem, file)):
            self.fail(f"{other} and {file} are experiments of one name; rename one", param, ctx)
        return f"{file.stem}{match[2] or ''}"


EXPERIMENT = _Experiment()


def given_files() -> dict[str, Path]:
    """Return the files of the experiments on this command line by name, for `load_params`."""
    ctx = click.get_current_context(silent=True)
    files: dict[str, Path] = {} if ctx is None else ctx.meta.setdefault(__name__, {})
    return files
