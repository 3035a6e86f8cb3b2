"""Features of a model of open_clip or transformers through all commands, without training."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.store.shards.index import read_index
from tests.images.networks.factories import add_tiny_models
from tests.images.networks.tiny_transformers import save_dual
from tests.project import Call

CLIP = "open-clip:tiny-vit"


@pytest.mark.parametrize("seed", [0, 1])
def test_both_sides_are_of_one_model(
    seed: int, project: Path, pipeline: Call, tmp_path: Path
) -> None:
    """The images have the weights random:0; captions of other weights are not mixed with them."""
    add_tiny_models(tmp_path)
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["extract"]["weights"] = "random:0"
    params["caption_features"] = {"clip": {"encoder": CLIP, "weights": f"random:{seed}"}}
    params["experiments"] = {"zero-shot": {"images": CLIP, "captions": "clip"}}
    params["ensembles"] = {}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    ran = pipeline("run", "zero-shot")
    head = Path("data/heads/scenes/zero-shot/head.json")
    if seed:
        assert (ran.status, head.exists()) == (1, False)
        assert "weights 'random:0'" in ran.stderr
        assert "weights 'random:1'" in ran.stderr
        return
    assert (ran.status, "| zero-shot " in ran.stdout) == (0, True), ran.stderr
    sides = json.loads(head.read_text())["inputs"]
    assert sides["images"]["weights_sha256"] == sides["captions"]["weights_sha256"]
    printed = pipeline("list", "recipes", CLIP, "--weights", "random:0")
    recipe_hash = json.loads(printed.stdout)["recipe_hash"]
    assert recipe_hash == read_index(Path("data/features/scenes") / CLIP).header.recipe_hash
    assert json.loads(pipeline("list", "recipes", CLIP).stdout)["recipe_hash"] is None
    image = next(Path("data/scenes").rglob("*.png"))
    for query in (("a red ball",), ("--image", image)):
        found = pipeline("search", *query, "--experiment", "zero-shot", "--top", 3)
        assert (found.status, len(found.stdout.splitlines()) >= 3) == (0, True), found.stderr
    # The same command finds everything current; single commands do, too.
    assert "made: nothing" in pipeline("run", "zero-shot").stderr
    for command in ("train", "embed"):
        assert pipeline(command, "--experiment", "zero-shot").status == 0


def test_a_model_of_transformers_is_ranked_and_evaluated(project: Path, pipeline: Call) -> None:
    pytest.importorskip("transformers", reason="needs the extra [transformers]")
    name = f"transformers:{save_dual(Path('models/clip'), 'clip')}"
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["caption_features"] = {"clip": {"encoder": name}}
    params["experiments"] = {"zero-shot": {"images": name, "captions": "clip"}}
    params["ensembles"] = {}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    ran = pipeline("run", "zero-shot")
    assert (ran.status, "| zero-shot " in ran.stdout) == (0, True), ran.stderr
    table = pipeline("evaluate")
    assert (table.status, "| zero-shot " in table.stdout) == (0, True), table.stderr
    found = pipeline("search", "a red ball", "--experiment", "zero-shot", "--top", 3)
    assert (found.status, len(found.stdout.splitlines()) >= 3) == (0, True), found.stderr
