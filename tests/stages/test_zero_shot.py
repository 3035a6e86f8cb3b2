"""Features of open_clip's models through all commands: nothing trained, and heads on top."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.store.shards.index import read_index
from tests.images.networks.factories import add_tiny_models
from tests.project import Call

CLIP = "open-clip:tiny-vit"


def give_weights(captions: str) -> None:
    """Name the features and heads in params.yaml; the images have the weights random:0."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["extract"]["weights"] = "random:0"
    params["caption_features"] = {"clip": {"encoder": CLIP, "weights": captions}}
    params["experiments"] = {
        "zero-shot": {"images": CLIP, "captions": "clip"},
        "clip-cca": {"images": CLIP, "captions": "clip", "preset": "wang2016-cca"},
    }
    params["ensembles"] = {}
    Path("params.yaml").write_text(yaml.safe_dump(params))


@pytest.fixture(autouse=True)
def _tiny_models(tmp_path: Path) -> None:
    add_tiny_models(tmp_path)


def test_both_sides_of_one_model(project: Path, pipeline: Call) -> None:
    give_weights("random:0")
    ran = pipeline("run", "zero-shot", "clip-cca")
    assert ran.status == 0, ran.stderr
    assert "| zero-shot " in ran.stdout
    head = json.loads(Path("data/heads/scenes/zero-shot/head.json").read_text())
    sides = head["inputs"]["images"], head["inputs"]["captions"]
    assert sides[0]["weights_sha256"] == sides[1]["weights_sha256"]
    assert {side["weights"] for side in sides} == {"random:0"}
    assert 0 < head["history"][0]["rsum"] <= 600
    printed = pipeline("list", "recipes", CLIP, "--weights", "random:0")
    recipe_hash = json.loads(printed.stdout)["recipe_hash"]
    assert recipe_hash == read_index(Path("data/features/scenes") / CLIP).header.recipe_hash
    assert json.loads(pipeline("list", "recipes", CLIP).stdout)["recipe_hash"] is None

    found = pipeline("search", "a red ball", "--experiment", "zero-shot", "--top", 3)
    assert found.status == 0, found.stderr
    assert len(found.stdout.splitlines()) >= 3
    picture = next(Path("data/scenes").rglob("*.png"))
    found = pipeline("search", "--image", picture, "--experiment", "zero-shot", "--top", 3)
    assert found.status == 0, found.stderr

    # The same command takes what is there; single commands do, too.
    assert "made: nothing" in pipeline("run", "zero-shot", "clip-cca").stderr
    for command in ("train", "embed"):
        assert pipeline(command, "--experiment", "zero-shot").status == 0


def test_sides_of_different_weights_are_not_mixed(project: Path, pipeline: Call) -> None:
    give_weights("random:1")
    ran = pipeline("run", "zero-shot")
    assert ran.status == 1
    assert "weights 'random:0'" in ran.stderr
    assert "weights 'random:1'" in ran.stderr
    assert not Path("data/heads/scenes/zero-shot/head.json").exists()
