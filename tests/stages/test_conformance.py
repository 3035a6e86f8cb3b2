"""What every command does: help, refusals in one paragraph, exit status, and nothing left behind.

The suite walks the tree of commands, so that a new command is in it; one without a row of
`REFUSALS` fails.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from stages.cli import cli
from stages.command import Command, Group
from stages.console import OutputPath
from tests.project import Call


def tree(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command below one, with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from tree(found, f"{path} {name}".strip())


TREE = dict(tree(cli))
LEAVES = {path: command for path, command in TREE.items() if not isinstance(command, click.Group)}
of_all = pytest.mark.parametrize("path", TREE)
of_leaves = pytest.mark.parametrize("path", LEAVES)


@of_all
def test_help(path: str, pipeline: Call) -> None:
    assert isinstance(TREE[path], (Command, Group))
    short, long = (pipeline(*path.split(), option) for option in ("-h", "--help"))
    assert (short.status, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith(f"Usage: pipeline {path}".rstrip())
    assert re.search(r"\bExamples?:\n", short.stdout)
    assert "-h, --help" in short.stdout


@pytest.mark.parametrize(
    ("lines", "heavy"),
    [
        ("'',", {"torch", "numpy", "yaml", "h5py", "tqdm"}),
        (
            "cli.list_commands(None)",
            {"torch", "scipy", "sklearn", "h5py", "nltk", "regex", "gensim", "pyarrow", "dask"},
        ),
    ],
    ids=["pipeline", "commands"],
)
def test_help_imports_nothing_heavy(lines: str, heavy: set[str]) -> None:
    program = (
        f"import sys; from stages.cli import cli\nfor name in {lines}:\n"
        " cli.main([*name.split(), '--help'], standalone_mode=False)\nprint(*sys.modules)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not heavy & {*ended.stdout.splitlines()[-1].split()}


@of_all
def test_misspelt_names_are_wrong_usage(path: str, pipeline: Call, empty: Path) -> None:
    command = TREE[path]
    if isinstance(command, click.Group):
        name = command.list_commands(click.Context(command))[0]
        given, hint = f"{name[:-2]}{name[-1]}{name[-2]}", f"did you mean {name}"
    else:
        long = [o for p in command.params for o in p.opts if o.startswith("--")] or ["--help"]
        given, hint = f"{long[0][:-1]}xx", f"No such option '{long[0][:-1]}xx'; did you mean"
    ended = pipeline(*path.split(), given)
    assert (ended.status, ended.stdout, [*empty.iterdir()]) == (2, "", [])
    assert hint in ended.stderr


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wrong_values(param: click.Parameter) -> Iterator[str]:
    """Yield values that the type of an option rejects."""
    kind = param.type
    if isinstance(kind, click.Choice):
        yield "no-such-choice"
    if isinstance(kind, click.IntRange | click.FloatRange):
        yield "many"
        if kind.min is not None:
            yield str(kind.min - 1)
    if isinstance(kind, OutputPath):
        yield ""


@of_leaves
def test_values_of_another_type_are_wrong_usage(path: str, pipeline: Call, empty: Path) -> None:
    for param in LEAVES[path].params:
        for value in wrong_values(param) if isinstance(param, click.Option) else ():
            ended = pipeline(*path.split(), f"{param.opts[-1]}={value}")
            assert (ended.status, ended.stdout, [*empty.iterdir()]) == (2, "", []), param.name
            assert f"Invalid value for '{param.opts[0]}'" in ended.stderr


@of_leaves
def test_interrupted(path: str, pipeline: Call, empty: Path, monkeypatch: Any) -> None:
    """Before any work: Ctrl-C has its status and one line in every command."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    command = LEAVES[path]
    monkeypatch.setattr(command, "callback", interrupted)
    monkeypatch.setattr(command, "params", [])
    ended = pipeline(*path.split())
    assert (ended.status, ended.stdout) == (130, "")
    assert ended.stderr.strip().startswith("pipeline: error: interrupted;")
