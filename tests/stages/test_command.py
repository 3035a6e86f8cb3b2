"""What all commands have in common: settings, help, suggestions, JSON, exit status."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pipeline.store.errors import WrongUsage
from stages.command import Answer, Command, Group, section
from stages.console import CONSOLE, OUTPUT, as_options
from stages.listing import LISTINGS, RECOMMENDED
from tests.project import PROJECT, Call


def test_python_runs_the_package() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pipeline", "--version"], check=True, capture_output=True, text=True
    )
    assert shown.stdout.startswith("pipeline, version")


@click.group(cls=Group)
def tool() -> None:
    """Offer two commands."""


@tool.command()
@click.argument("url")
@click.option("--rows", "num_rows", type=int, default=3)
@click.option("--weights", default="imagenet")
@click.option("--fast", is_flag=True)
@click.option("--split", multiple=True, type=(str, int))
@click.option("--name")
def work(**given: object) -> None:
    """Work."""


@tool.command()
@click.option("--layout", "form")
@click.option("--skip-bad", is_flag=True)
@click.option("--rows", "num_rows", type=int)
def fail(**given: object) -> None:
    """Log and fail as the library does."""
    CONSOLE.log("see `num_rows=3`")
    raise WrongUsage("`form=...` goes with `skip_bad=True`, `form=npy`, `other=...` or `a`")


@tool.command(cls=Answer)
@click.option("--name")
def ask(**given: object) -> None:
    """Answer."""
    click.echo("42")


def said(*arguments: str, **options: object) -> str:
    ended = CliRunner().invoke(tool, list(arguments), prog_name="tool", **options)  # type: ignore[arg-type]
    assert ended.exit_code == 0, ended.output
    return ended.stderr


def test_the_settings_that_were_given_are_logged_once() -> None:
    given = ("--rows", "3", "--fast", "--split", "train", "5", "--split", "val", "1")
    url = "https://me:key@host/x?signature=1"
    assert said("work", url, *given) == (
        "tool work: url=https://host/x rows=3 fast split=train=5,val=1\n"
    )
    assert said("work", "a\x1b[31mb") == "tool work: url=a\\x1b[31mb\n"


def test_of_params_yaml_what_differs_from_the_defaults_is_logged() -> None:
    defaults = {"work": {"weights": "imagenet", "num_rows": 7, "name": None}}
    assert said("work", "u", default_map=defaults) == "tool work: url=u rows=7\n"


def test_an_answer_has_no_settings() -> None:
    assert said("ask", "--name", "x") == ""


def test_an_unknown_recipe_is_answered_with_the_names_of_libraries(pipeline: Call) -> None:
    ended = pipeline("list", "recipes", "resnet50")
    assert ended.status == 2
    assert "resnet50-caffe" in ended.stderr
    assert "torchvision:MODEL, timm:MODEL" in ended.stderr


def test_many_options_are_shown_in_groups(pipeline: Call) -> None:
    titles = [
        line.removesuffix(":")
        for line in pipeline("extract", "--help").stdout.splitlines()
        if line.endswith(":") and not line.startswith(" ")
    ]
    assert titles == ["Options", "Input", "Output", "Computing", "Storage", "Cluster"]
    assert "Input" not in pipeline("list", "--help").stdout


def test_options_are_grouped_by_their_section_and_type() -> None:
    names = "abcdefgi"

    @click.command(cls=Command)
    @section("Speed", *(click.option(f"--{name}") for name in names))
    @click.option("--of", type=click.Path(path_type=Path))
    @click.option("--to", type=OUTPUT)
    def many(**given: object) -> None:
        """Have many options."""

    shown = CliRunner().invoke(many, ["--help"]).stdout
    places = [shown.index(f"  --{name}") for name in ("of", "to", *names)]
    assert places == sorted(places)
    assert shown.index("Input:") < shown.index("Output:") < shown.index("Speed:")


@pytest.mark.parametrize("kind", LISTINGS)
def test_names_are_listed(
    pipeline: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = json.loads(pipeline("list", kind, "--json").stdout)
    assert len({row["name"] for row in rows}) == len(rows) > 1
    assert len({tuple(row) for row in rows}) == 1
    text = pipeline("list", kind).stdout.splitlines()
    if kind == "experiments":
        assert max(map(len, [*text, *pipeline("list", kind, "--all").stdout.splitlines()])) <= 100
    assert [line.split()[0] for line in text] == ["name", *(row["name"] for row in rows)]


def test_the_lists_have_all_families(pipeline: Call, project: Path) -> None:
    recipes = json.loads(pipeline("list", "recipes", "--json").stdout)
    assert {row["of"] for row in recipes} == {"images", "regions", "clips", "sound"}
    found = json.loads(pipeline("list", "experiments", "--all", "--json").stdout)
    assert {"params.yaml", "published"} == {row["from"] for row in found}
    kinds = {"experiment", "clips", "phrases", "language model", "ensemble"}
    assert {row["kind"] for row in found} == kinds
    printed = json.loads(pipeline("list", "recipes", "vgg19").stdout)
    assert (printed["name"], printed["combine_crops"]) == ("vgg19-fc7-10crop", "mean")


def test_parameters_in_messages_are_options_of_the_command() -> None:
    ended = CliRunner().invoke(tool, ["fail"])
    assert str(ended.exception) == (
        "--layout goes with --skip-bad, --layout npy, `other=...` or `a`"
    )
    assert ended.stderr == "see --rows 3\n"
    assert as_options("`top=3`") == "`top=3`"  # outside of a command


def test_messages_of_the_library_name_parameters_and_no_options() -> None:
    """Except within a command, as in `pipeline embed --split all`."""
    command = re.compile(r"`(pipeline|pip|hf|coco) [^`]*`|'extract --regions'|sha256sum --check")
    option = re.compile(r"[\s(`]--[{a-z]")
    found = []
    for path in sorted((PROJECT / "pipeline").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.parent.name in OTHER_TEXTS or "--" not in source:
            continue
        for text in texts_of(ast.parse(source)):
            if option.search(command.sub("", text)):
                found.append(f"{path.relative_to(PROJECT)}: {text}")
    assert found == []


OTHER_TEXTS = ("workers", "report", "serve", "pages")
"""Folders with style sheets, and with the options of `dask worker` and batch systems."""


def texts_of(module: ast.Module) -> Iterator[str]:
    """Yield the source of texts that are neither docstrings nor help; f-strings whole."""
    parts = {id(part) for node in ast.walk(module) if isinstance(node, ast.JoinedStr)
             for part in ast.walk(node) if part is not node}  # fmt: skip
    parts |= {id(part) for node in ast.walk(module)
              if isinstance(node, ast.keyword) and node.arg == "help"
              for part in ast.walk(node.value)}  # fmt: skip
    for node in ast.walk(module):
        text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and "--" in node.value
        )
        if text and id(node) not in parts:
            yield ast.unparse(node)


def test_experiments_are_those_that_papers_recommend(pipeline: Call, project: Path) -> None:
    """With the features that `run` computes at its default size."""
    rows = json.loads(pipeline("list", "experiments", "--json").stdout)
    assert {row["name"] for row in rows} >= RECOMMENDED
    assert len(RECOMMENDED) == 25
    (vsepp,) = (row for row in rows if row["name"] == "vsepp")
    assert vsepp["images"] == "efficientnet-lite0-pool"
    wang = json.loads(pipeline("list", "experiments", "--paper", "wang2016", "--json").stdout)
    assert len(wang) > 20
    assert all(row["name"].startswith("wang2016") for row in wang)
