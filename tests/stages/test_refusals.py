"""Mistakes on the command line end in one paragraph and the exit status, and leave nothing.

`refusals.txt` has the lines, of every command at least one. What a library function refuses is
tested with the function; here are what a command decides, and one mistake of each kind.
"""

from pathlib import Path

import click
import pytest
import yaml

from stages.extract import _require_images_alone
from stages.params import Params, load_params
from tests.project import Call
from tests.stages.test_conformance import LEAVES

LINES = [
    line
    for line in Path(__file__).with_name("refusals.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
REFUSALS = list(zip(LINES[::2], LINES[1::2], strict=True))


def test_every_command_refuses_something() -> None:
    asked = {command for command in LEAVES for line, _ in REFUSALS if line.startswith(command)}
    assert {*LEAVES} - asked == set()


@pytest.mark.parametrize(("line", "expected"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_mistakes_get_one_paragraph_and_leave_nothing(
    within: Path, pipeline: Call, line: str, expected: str
) -> None:
    before = {*Path().rglob("*")}
    ended = pipeline(*line.split())
    status, message = expected.split(maxsplit=1)
    assert (ended.status, ended.stdout) == (int(status), ""), ended.stderr
    *before_it, paragraph = ended.stderr.splitlines()
    assert [text for text in before_it if "error" in text.lower()] == []
    assert "error" in paragraph.lower()
    assert message in paragraph
    assert "did you mean" not in paragraph or paragraph.count(",") < 8, "a few names, not all"
    assert not [path for path in {*Path().rglob("*")} - before if ".work" not in str(path)]


@pytest.mark.parametrize("option", ["--data", "--dataset", "--image-features"])
def test_an_empty_path_is_not_the_current_folder(within: Path, pipeline: Call, option: str) -> None:
    ended = pipeline("run", "vsepp", option, "")
    assert (ended.status, f"'{option}': the path is empty" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size: tiny\nsead: 0\n", "unknown key 'sead' (did you mean seed?)"),
        ("size: tiny\n1: 2\n", "unknown key 1 and is read as this program's because of 'size'"),
        ("extract: {thread: 1}\n", "extract: Object contains unknown field `thread`"),
        ("extract: {weights: 1}\n", "extract.weights: Expected `str`"),
        ("dataset: scenes\nscenes: {images: 6}\n", "unknown key 'scenes' (did you mean"),
        ("experiments:\n  x: {precision: fp16}\n", "experiments.x.precision"),
        ("experiments:\n  lr/1: {preset: vsepp}\n", "experiments: the name 'lr/1' has /; it"),
        (
            "experiments:\n  x@a/b: {preset: vsepp}\n  x@a--b: {preset: vsepp}\n",
            "'x@a/b' and 'x@a--b' both name the file 'x@a--b'",
        ),
        ("ensembles:\n  ../x: {vsepp: 1}\n", "ensembles: the name '../x' begins with a dot"),
        (
            "datasets: {x: {kind: flickr9k}}\n",
            "datasets.x: unknown kind 'flickr9k'; did you mean flickr8k",
        ),
        ("- seed\n- 0\n", "is a list, expected a mapping such as `seed: 0`"),
        ("a: [", "is not YAML"),
        ("seed: 2026-13-01\n", "is not YAML"),
        ("seed: !!timestamp x\n", "is not YAML"),
        ("a: " + "[" * 3000 + "]" * 3000, "is not YAML"),
    ],
)
def test_a_wrong_params_yaml_is_named_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    ended = pipeline("train", "--experiment", "x")
    assert (ended.status, message in ended.stderr) == (1, True), ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "train: {lr: 0.0002, epochs: 2}\n",
        # Of DVC's tutorial, once with a section of a name that this program has too.
        "prepare: {split: 0.2, seed: 1}\nfeaturize: {max_features: 100}\ntrain: {n_est: 50}\n",
        "train: {seed: 1, n_est: 50, min_split: 0.01}\nevaluate: {n_est: 50}\nseed: 3\n",
    ],
)
def test_params_of_another_program_are_left_alone_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    assert load_params() == Params()
    ended = pipeline("train", "--experiment", "wang2016-cca")
    assert (ended.status, ended.stderr.count("train)")) == (2, 1), ended.stderr
    assert "params.yaml is not used: it has keys of another program (" in ended.stderr
    assert Path("params.yaml").read_text() == text


def test_a_misspelt_key_of_this_program_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("experimens: {a: {preset: vsepp}}\n")
    assert "(experimens, a misspelt experiments?)" in pipeline("list", "experiments").stderr


def test_an_empty_params_yaml_is_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("# nothing yet\n")
    assert (load_params(), capsys.readouterr().err) == (Params(), "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "recurrent"}, "no head is called 'recurrent'"),
        ({"settings": {"decay": 0.5}}, "has no setting 'decay'"),
        ({"head": None}, "no preset is called 'untrained'"),
        ({"preset": "vsepp"}, "remove one"),
        ({"head": None, "preset": "vsep"}, "did you mean vsepp"),
        ({"head": "vse"}, "reads captions word by word, but 'mean-glove-6b-50d' is 'mean"),
        ({"head": "scan"}, "needs a grid or a list of regions"),
        ({"word_vectors": "glove-6b-50d"}, "has no token ids"),
    ],
)
def test_an_experiment_that_cannot_be_trained(
    copy: Path, pipeline: Call, changes: dict[str, object], message: str
) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["experiments"]["untrained"] |= changes
    Path("params.yaml").write_text(yaml.safe_dump(params))
    ended = pipeline("train", "--experiment", "untrained")
    assert (ended.status, message in ended.stderr) == (1, True), ended.stderr
    assert not Path("data/heads/scenes/untrained").exists()
    assert not [*Path("data").rglob("*untrained*")]


def test_a_flag_of_a_family_that_is_not_set_is_compatible_with_images() -> None:
    _require_images_alone(split=None, a_flag=False, several=())
    with pytest.raises(click.UsageError, match="--a-flag requires a prepared dataset"):
        _require_images_alone(split=None, a_flag=True)


def test_a_folder_without_params_has_no_default_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    for line, message in (
        ("train --experiment x", "no experiment 'x'"),
        ("train --experiment wang2016-cca", "params.yaml not found"),
        ("run qian2018-baseline", "pass --dataset"),
        ("compare a b", "--dataset DIR"),
        ("evaluate", "all experiments of params.yaml are evaluated"),
    ):
        ended = pipeline(*line.split())
        assert (ended.status, message in ended.stderr, [*tmp_path.iterdir()]) == (2, True, [])
