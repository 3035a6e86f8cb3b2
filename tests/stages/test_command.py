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
from stages.cli import COMMANDS, cli
from stages.command import Answer, Command, Group, section
from stages.console import CONSOLE, OUTPUT, as_options
from stages.listing import LISTINGS, RECOMMENDED
from tests.project import PROJECT, Call


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("extrct", "No such command 'extrct'; did you mean extract?"),
        ("serach", "No such command 'serach'; did you mean search?"),
        ("shards exprt", "did you mean export"),
        ("extract --recpie x", "No such option '--recpie'; did you mean --recipe?"),
        ("prepare fodler", "did you mean folder?"),
        ("list vectors --jsn", "did you mean --json?"),
    ],
)
def test_misspelt_commands_and_options_are_recognised(
    pipeline: Call, arguments: str, message: str
) -> None:
    ended = pipeline(*arguments.split())
    assert (ended.status, ended.stdout) == (2, "")
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ("list recipes resnt152-grid", ("did you mean resnet152-grid",)),
        ("list recipes clip", ("open-clip:MODEL.TAG", "timm:MODEL")),
        ("text --encoder maen --dataset data --out x", ("did you mean mean",)),
        ("train --experiment kiros", ("kiros2014-lstm", "kiros2014-gru")),
        ("run kiros --dataset data", ("kiros2014-lstm", "kiros2014-gru")),
        ("run vsep", ("did you mean vsepp",)),
        ("localize wang2016-phrase-cca --method grid", ("did you mean wang2016-phrases-cca",)),
        ("extract --backbone vgg19 --dataset x --out y --precision flot32", ("float32",)),
    ],
)
def test_a_value_that_no_choice_has_is_wrong_usage(
    pipeline: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, messages: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = pipeline(*arguments.split())
    assert (ended.status, ended.stdout, list(tmp_path.iterdir())) == (2, "", [])
    last = ended.stderr.splitlines()[-1]
    assert all(message in last for message in messages), last
    assert last.count(",") < 8, "a few names, not all"


def test_a_model_of_timm_is_suggested_under_its_own_name(pipeline: Call) -> None:
    pytest.importorskip("timm")
    ended = pipeline("list", "recipes", "resnet50")
    assert (ended.status, "did you mean timm:resnet50" in ended.stderr) == (2, True)


def test_h_is_help_everywhere(pipeline: Call) -> None:
    extract = cli.get_command(click.Context(cli), "extract")
    assert extract is not None
    assert "-h, --help" in extract.get_help(click.Context(extract))
    for command in ("", "extract", "shards", "shards push", "prepare", "prepare scenes", "list"):
        short, long = (pipeline(*command.split(), option) for option in ("-h", "--help"))
        assert (short.status, short.stdout) == (0, long.stdout)
        assert short.stdout.startswith(f"Usage: pipeline {command}".rstrip())


def test_every_command_is_one_of_ours() -> None:
    context = click.Context(cli)

    def commands(group: click.Group) -> list[click.Command]:
        found = [group.get_command(context, name) for name in group.list_commands(context)]
        each = [[c, *(commands(c) if isinstance(c, click.Group) else [])] for c in found if c]
        return [command for several in each for command in several]

    every = commands(cli)
    assert len(every) > len(COMMANDS)
    assert [c.name for c in every if not isinstance(c, (Command, Group))] == []


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
    assert kind != "experiments" or max(map(len, text)) <= 100
    assert [line.split()[0] for line in text] == ["name", *(row["name"] for row in rows)]


def test_the_lists_have_all_families(pipeline: Call, project: Path) -> None:
    recipes = json.loads(pipeline("list", "recipes", "--json").stdout)
    assert {row["of"] for row in recipes} == {"images", "regions", "clips", "sound"}
    found = json.loads(pipeline("list", "experiments", "--all", "--json").stdout)
    assert {"params.yaml", "published"} == {row["from"] for row in found}
    kinds = {"experiment", "clips", "phrases", "language model", "ensemble"}
    assert {row["kind"] for row in found} == kinds


def test_results_as_json_are_all_of_stdout(project: Path, pipeline: Call) -> None:
    out = ("--dataset", "data/scenes", "--out")
    recipe = ("--recipe", "efficientnet-lite0-pool")
    ended = pipeline("extract", *recipe, *out, "features", "--limit", 4, "--json")
    made = json.loads(ended.stdout)
    assert (made["rows"], made["failed_rows"], made["row_shape"]) == (4, 0, [1280])
    assert "4 rows (1280,) in 1 shard in features" in ended.stderr
    text = json.loads(pipeline("text", "--encoder", "mean", *out, "text", "--json").stdout)
    assert (text["rows"], text["recipe"], text["dataset"]) == (300, "mean-glove-6b-50d", "scenes")
    proposed = pipeline("propose", "--method", "grid", *out, "boxes", "--limit", 1, "--json")
    assert json.loads(proposed.stdout)["rows"] == 1

    info = json.loads(pipeline("shards", "info", "features", "--json").stdout)
    assert (info["rows"], info["recipe_hash"]) == (4, made["recipe_hash"])
    verified = pipeline("shards", "verify", "features", "--json")
    assert (verified.status, json.loads(verified.stdout)["faults"]) == (0, [])
    shard = next(Path("features").glob("*.h5"))
    shard.write_bytes(shard.read_bytes()[:-9])
    verified = pipeline("shards", "verify", "features", "--json")
    assert verified.status == 1
    assert json.loads(verified.stdout)["faults"][0]["file"] == shard.name


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from stages.cli import cli; "
        "cli.main(['--help'], standalone_mode=False); "
        "print(sorted({'torch', 'numpy', 'yaml', 'h5py', 'tqdm'} & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "[]"


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
    found = []
    for path in sorted((PROJECT / "pipeline").rglob("*.py")):
        if path.parent.name in OTHER_TEXTS:
            continue
        for text in texts_of(ast.parse(path.read_text(encoding="utf-8"))):
            if re.search(r"[\s(`]--[{a-z]", command.sub("", text)):
                found.append(f"{path.relative_to(PROJECT)}: {text}")
    assert found == []


OTHER_TEXTS = ("workers", "report", "serve", "pages")
"""Folders with style sheets, and with the options of `dask worker` and batch systems."""


def texts_of(module: ast.Module) -> Iterator[str]:
    """Yield the source of all texts that are not docstrings, those with values in them whole."""
    parts = {id(part) for node in ast.walk(module) if isinstance(node, ast.JoinedStr)
             for part in ast.walk(node) if part is not node}  # fmt: skip
    for node in ast.walk(module):
        text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
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
    ended = pipeline("list", "experiments", "--paper", "wang2061")
    assert (ended.status, "did you mean wang2016" in ended.stderr) == (2, True)
    for arguments in (("heads", "--all"), ("recipes", "--weights", "random:0"), ("heads", "vse")):
        assert pipeline("list", *arguments).status == 2
