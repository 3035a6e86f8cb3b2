"""What `train`, `embed` and `run` make of the project's own params.yaml."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pytest

from pipeline.heads import HeadError
from pipeline.heads.experiments import Size, experiment_finder, resolve_experiment
from pipeline.heads.presets import PRESETS
from pipeline.store.errors import UnknownName
from stages.listing import experiments
from stages.params import Params, load_params
from stages.plan import every_name, experiment_of, run_options
from tests.project import PROJECT


@pytest.mark.parametrize("size", get_args(Size))
def test_caption_features_of_one_name_are_one_beside_those_of_the_file(
    size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of each goes by its name, so that two of one name would be in each other's way."""
    monkeypatch.chdir(PROJECT)
    params = load_params()
    made = [experiment_of(params, name, size).captions for name in PRESETS]
    made += [experiment_of(params, name, size).captions for name in params.experiments]
    assert len({c.name for c in made}) == len({json.dumps(asdict(c)) for c in made})
    (fisher,) = {c.options["sample"] for c in made if c.name == "fv-hglmm-pca1000"}
    assert fisher == 5000
    experiments = run_options(params, size)["experiments"]
    assert {name for name in every_name(params) if name not in experiments} == {"ours"}


def test_features_that_an_experiment_omits_are_its_preset_s_at_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(
        "experiments: {wide: {preset: vsepp, settings: {dim: 512}}, vsepp: {}, "
        "own: {preset: vsepp, images: a, precision: bf16}, cca: {preset: wang2016-cca}, "
        "ridge: {head: ridge, images: a}}\n"
        "caption_features: {fv-hglmm-pca1000: {encoder: fv-hglmm, sample: 7}}\n"
    )
    params = load_params()
    assert experiment_of(params, "own").precision == "bf16"
    assert experiment_of(Params(), "wang2016-cca").captions.options["sample"] == 20_000
    for size in get_args(Size):
        plain = resolve_experiment("vsepp", size=size)
        for name, images in (("wide", plain.images), ("own", "a"), ("vsepp", plain.images)):
            made = experiment_of(params, name, size)
            assert (made.images, made.captions) == (images, plain.captions)
    # Features of that name in the file replace them.
    assert experiment_of(params, "cca", "small").captions.options == {"sample": 7}
    with pytest.raises(HeadError, match=r"'ridge' .* needs `images` and `captions`"):
        experiment_of(params, "ridge")
    listed = {row["name"]: row for row in experiments()}
    assert (listed["own"]["images"], listed["own"]["captions"]) == ("a", "token-ids")
    assert (listed["ridge"]["images"], listed["ridge"]["captions"]) == ("a", "")


def test_an_experiment_is_found_on_other_image_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "experiments:\n  mine: {images: a, captions: b, preset: vsepp, settings: {dim: 8}}\n"
    Path("params.yaml").write_text(text)
    params, recipe = load_params(), "timm:resnet50@layer3"
    for name, dim in (("mine", 8), ("vsepp", 256)):
        found = experiment_of(params, f"{name}@{recipe}")
        plain = experiment_of(params, name)
        assert (found.name, found.images) == (f"{name}@{recipe}", recipe)
        assert found.settings == plain.settings
        assert found.settings["dim"] == dim
        assert found == experiment_finder({"mine": experiment_of(params, "mine")})(found.name)
    with pytest.raises(HeadError, match="fine-tunes the network of efficientnet-lite0-pool"):
        experiment_of(params, "vsepp-finetuned@resnet50-caffe-pool")
    with pytest.raises(HeadError, match="lacks the name of features"):
        experiment_of(params, "vsepp@")
    with pytest.raises(UnknownName, match=r"'vsep'.*did you mean vsepp"):
        experiment_of(params, "vsep@resnet50-caffe-pool")
