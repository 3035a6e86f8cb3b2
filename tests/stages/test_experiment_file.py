"""An experiment in a YAML file of its own: what its entry in params.yaml makes."""

from pathlib import Path

import pytest
import yaml

from pipeline.retrieval.embedding_file import read_embeddings
from tests.project import Call
from tests.stages.conftest import LITE, NAME
from tests.stages.test_run_command import files, made

OF = ("--dataset", "data/scenes")


def test_it_is_the_same_experiment_in_every_command(copy: Path, pipeline: Call) -> None:
    by_params = files("data/heads/scenes", "data/embeddings/scenes")
    params = yaml.safe_load(Path("params.yaml").read_text())
    found = ("search", "a red circle", *OF, "--experiment")
    hits = pipeline(*found, NAME)
    Path("params.yaml").unlink()
    Path("mine").mkdir()
    file = Path(f"mine/{NAME}.yaml")
    file.write_text(yaml.safe_dump(params["experiments"][NAME]))

    planned = pipeline("run", file, f"{file}@resnet50-caffe-pool", "--dry-run", *OF)
    assert planned.status == 0, planned.stderr
    assert made(planned.stderr) == ["evaluate", "extract", "train", "embed", "evaluate"]
    assert f"train {NAME}@resnet50-caffe-pool" in planned.stderr
    Path(f"data/embeddings/scenes/{NAME}.h5").unlink()
    for command in ("train", "embed"):
        ended = pipeline(command, "--experiment", file, *OF)
        assert ended.status == 0, ended.stderr
    assert files("data/heads/scenes", "data/embeddings/scenes") == by_params
    assert (pipeline(*found, file).stdout, hits.status) == (hits.stdout, 0)

    file.write_text(yaml.safe_dump({**params["experiments"][NAME], "images": f"{LITE}+x"}))
    ended = pipeline(*found, file)
    assert f"run `pipeline run {file} --dataset data/scenes`" in ended.stderr, ended.stderr


def test_corrected_cosines_need_no_training(copy: Path, pipeline: Call) -> None:
    out, before = Path(f"data/embeddings/scenes/{NAME}.h5"), files("data/embeddings/scenes")
    text = Path("params.yaml").read_text()
    params = yaml.safe_load(text)
    params["experiments"][NAME]["csls"] = True
    found = pipeline("search", "a red circle", *OF, "--experiment", NAME)
    Path("params.yaml").write_text(yaml.safe_dump(params))
    ended = pipeline("run", NAME, *OF)
    assert made(ended.stderr) == ["embed", "evaluate"], ended.stderr
    space = read_embeddings(out)
    assert (space.similarity, space.provenance["csls"]) == ("dot", "train")
    assert made(pipeline("run", NAME, *OF, "--dry-run").stderr) == []
    assert pipeline("search", "a red circle", *OF, "--experiment", NAME).stdout == found.stdout
    refused = pipeline("export", NAME, "--to", "torch", "--out", "out", *OF)
    assert f"rows of {NAME} are corrected by `csls`" in refused.stderr, refused.stderr
    Path("params.yaml").write_text(text)
    assert made(pipeline("run", NAME, *OF).stderr) == ["embed", "evaluate"]
    assert files("data/embeddings/scenes") == before


def test_a_file_replaces_the_entry_of_its_name(copy: Path, pipeline: Call) -> None:
    Path(f"{NAME}.yml").write_text("preset: vsepp")
    planned = pipeline("run", f"{NAME}.yml", "other", "--dry-run")
    assert planned.status == 0, planned.stderr
    assert made(planned.stderr) == ["text", "train", "embed", "evaluate", "evaluate"]
    assert f"train {NAME}, embed {NAME}, evaluate {NAME}, evaluate other" in planned.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "mine.yaml not found; expected a YAML file with one experiment"),
        ("imags: x", "mine.yaml has an unknown key 'imags' (did you mean images?); known: image"),
        ("settings: {dim: 8}\nprecision: fp16", "mine.yaml is wrong at precision: Expected one of"),
        ("settings: 8", "mine.yaml is wrong at settings: Expected `object`"),
        ("- vsepp", "mine.yaml is a list, expected a mapping such as `preset: vsepp`"),
        ("a: [", "mine.yaml is not YAML"),
        ("{}", "no preset is called 'mine'"),
        ("head: ridge", "'mine' sets a head without a preset, so it needs `images`"),
        ("head: mine.head:HEAD\nimages: a\ncaptions: b", "'mine.head:HEAD' cannot be imported ("),
        ("preset: vsepp\nsettings: {dims: 8}", "has no setting 'dims'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named_with_its_key(
    within: Path, tmp_path: Path, pipeline: Call, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text)
    for command in (("run",), ("train", "--experiment"), ("search", "red", "--experiment")):
        ended = pipeline(*command, tmp_path / "mine.yaml", *OF)
        assert (ended.status, message in ended.stderr) == (1, True), ended.stderr


def test_two_files_of_one_name_are_wrong_usage(within: Path, pipeline: Call) -> None:
    ended = pipeline("run", "a/mine.yaml", "b/mine.yaml", *OF)
    assert ended.status == 2
    assert "a/mine.yaml and b/mine.yaml are experiments of one name; rename one" in ended.stderr
