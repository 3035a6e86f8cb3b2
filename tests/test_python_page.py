"""docs/python.md and help: each command has its function, and all of them are documented."""

import doctest
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

import pipeline
from stages.cli import cli
from tests.project import PROJECT

PAGE = (PROJECT / "docs/python.md").read_text(encoding="utf-8")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_examples(text: str, names: dict[str, object], where: str) -> None:
    """Run the examples of a text, and fail with what was expected and found."""
    test = doctest.DocTestParser().get_doctest(text, names, where, where, 0)
    assert test.examples, where
    reports: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=reports.append)
    assert not reports, "".join(reports)


def commands(command: click.Command, path: str) -> Iterator[str]:
    """Yield the words of every command that is not a group."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, f"{path} {name}")


def test_every_command_has_a_public_function() -> None:
    table = dict(re.findall(r"^\| `(pipeline [^`]+)` \| (.+) \|$", PAGE, re.MULTILINE))
    # It writes files of DVC alone.
    assert sorted(table) == sorted({*commands(cli, "pipeline")} - {"pipeline init"})
    for command, cell in table.items():
        first = re.match(r"`(\w+)", cell)
        assert first is not None, command
        assert first[1] in pipeline.__all__, f"{command}: {first[1]}"
        value = getattr(pipeline, first[1])
        assert callable(value) or first[1] == "RECIPES"


def public() -> Iterator[tuple[str, object]]:
    """Yield every public function and class, and the public methods of the latter."""
    for name in pipeline.__all__:
        value = getattr(pipeline, name)
        if name in {"__version__", "RECIPES"}:
            continue
        yield name, value
        if inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_") or method in {"__call__", "__getitem__"}:
                    yield f"{name}.{method}", function


def test_help_is_readable() -> None:
    for name, value in public():
        assert inspect.getdoc(value), name
        if inspect.isclass(value) and issubclass(value, Exception):
            continue
        assert callable(value)
        signature = inspect.signature(value)
        for private in ("_typing", "ForwardRef", " object at 0x", "numpy._"):
            assert private not in str(signature), name
        for parameter in signature.parameters.values():
            hidden = parameter.name == "self" or parameter.kind is parameter.VAR_KEYWORD
            assert hidden or parameter.annotation is not parameter.empty, f"{name}: {parameter}"


TYPES = (
    r"str|int|float|bool|dict|mapping|sequence|iterable|array_like|callable|image|object|[A-Z]\w+"
)


def test_parameters_of_functions_have_types() -> None:
    """As numpydoc has them: `name : type. Text`, or `name : see ...`."""
    lacking = []
    for name in pipeline.__all__:
        function = getattr(pipeline, name)
        if not inspect.isfunction(function):
            continue
        text = inspect.getdoc(function) or ""
        _, _, rest = text.partition("Parameters\n----------\n")
        documented: set[str] = set()
        for line in rest.partition("\n\n")[0].splitlines():
            if found := re.match(r"([\w, ]+) : (.*)", line):
                documented |= {*found[1].split(", ")}
                if not re.match(rf"see |({TYPES})\b", found[2]):
                    lacking.append(f"{name}: {line}")
        lacking += [
            f"{name}: {parameter}"
            for parameter in {*inspect.signature(function).parameters} - documented
        ]
    assert lacking == []


def test_the_names_of_the_table_are_those_that_type_checkers_see() -> None:
    text = (PROJECT / "pipeline/__init__.py").read_text(encoding="utf-8")
    imports = re.findall(r"^    from ([\w.]+) import (?:\(\s*)?(\w+) as \2", text, re.MULTILINE)
    assert {name: home for home, name in imports} == pipeline._HOMES


@pytest.fixture
def example_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A feature set of three rows, drawn scenes, and an experiment that was run on them."""
    monkeypatch.chdir(tmp_path)
    rows = np.array([[1, 2, 3], [4, 5, 6], [np.nan] * 3], np.float32)
    pipeline.write_features(
        "features/mine",
        ["a.jpg", "b.jpg", "c.jpg"],
        rows,
        recipe={"name": "mine"},
        status=[0, 0, 1],
        errors=["", "", "not an image"],
    )
    pipeline.draw_scenes("data/mine", 24, seed=0).write("data/mine")
    pipeline.run("qian2018-baseline", "data/mine", size="tiny")
    return tmp_path


# Names without an example: data, and the entry point of those who write a family of features.
WITHOUT_EXAMPLE = {"__version__", "RECIPES", "make_features"}


def test_examples_of_docstrings_run(example_folder: Path) -> None:
    from pipeline.datasets.entries import ImageEntry
    from pipeline.retrieval.query.similar_images import FeatureSearcher
    from pipeline.store.shards.feature_dataset import FeatureDataset

    entries = [
        ImageEntry("a.jpg", "a.jpg", "train", ("a dog", "a brown dog")),
        ImageEntry("b.jpg", "b.jpg", "train", ("a cat",)),
        ImageEntry("c.jpg", "c.jpg", "test", ("a tree",)),
    ]
    names = {
        "pipeline": pipeline,
        "np": np,
        "folder": "features/mine",
        "features": pipeline.read_features("features/mine"),
        "manifest": pipeline.Manifest("mine", Path("photos"), entries, "CC0", "drawn", {}),
        "recall": pipeline.recall,
        "write_features": pipeline.write_features,
        "FeatureExtractor": pipeline.FeatureExtractor,
        "FeatureSearcher": FeatureSearcher,
    }
    public = [getattr(pipeline, name) for name in pipeline.__all__ if name not in WITHOUT_EXAMPLE]
    for value in (*public, FeatureDataset, FeatureSearcher):
        text = inspect.getdoc(value)
        assert text is not None
        run_examples(textwrap.dedent(text), dict(names), value.__qualname__)


@pytest.mark.parametrize("kind", ["pipeline/__init__.py", "pipeline/other.txt"])
def test_a_file_in_place_of_the_package_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / kind).parent.mkdir(exist_ok=True)
    (tmp_path / kind).write_text("", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", "from stages.cli import main; main()", "--version"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{PROJECT}"},
        cwd=tmp_path,
    )
    if kind.endswith(".py"):
        assert ended.returncode == 1
        assert f"`import pipeline` finds {tmp_path / kind} in place of the package" in ended.stderr
        assert "Traceback" not in ended.stderr
    else:  # a folder without __init__.py does not come before a package
        assert (ended.returncode, ended.stderr) == (0, "")


def test_bars_show_progress_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = pipeline.progress_bar()
    monitor.log("one line")
    with monitor.progress("resnet", "image") as progress:
        for done in range(3, 11):
            progress(done, 10, done // 9)
    with monitor.progress("nothing", "image"):
        pass
    found = capsys.readouterr()
    assert found.out == "one line\n"
    assert "resnet: 100%" in found.err
    assert "10/10" in found.err
    assert "1 failed" in found.err
    assert "nothing" not in found.err
    assert repr(pipeline.store.progress.QUIET) == "QUIET"
