"""The commands that `bench.scale` measures have today's options."""

import sys
from pathlib import Path

import click
import pytest

from bench.scale import IMAGES, STEPS, TEXT, pipeline_command
from stages.cli import cli


def test_every_command_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("dataset", "pictures", "head", IMAGES, TEXT / "mean", TEXT / "mean.encoder"):
        Path(folder).mkdir(parents=True)
    for file in ("captions.csv", "space.h5"):
        Path(file).touch()
    start = pipeline_command()
    parsed = 0
    for step in STEPS:
        arguments = step.command(10)
        if arguments[: len(start)] != start:
            assert arguments[:2] == [sys.executable, "-m"]
            continue
        name, command, rest = cli.resolve_command(click.Context(cli), arguments[len(start) :])
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(click.Context(command), rest)
        assert command is not None
        command.make_context(name, rest)
        parsed += 1
    assert parsed == len(STEPS) - 3
