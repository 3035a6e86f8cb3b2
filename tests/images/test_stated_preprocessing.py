"""A folder of weights that were trained with another image than the recipe's is named as such."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import pipeline
from pipeline.images.recipes import resolve_recipe
from pipeline.images.stated_preprocessing import remark_on_preprocessing
from pipeline.images.weights import load_weights
from tests.project import Recorder

NAME = "timm:test_resnet-pool"  # bilinear crops of 160 pixels, mean and deviation 0.5
HALF = [0.5, 0.5, 0.5]
NONE = ("states no preprocessing", "shorter-side", "crop 160", "std 0.5 0.5 0.5")


@pytest.mark.parametrize(
    ("file", "content", "unlike"),
    [
        ("config.json", {"pretrained_cfg": {"mean": HALF, "input_size": [3, 160, 160]}}, ()),
        ("config.json", {"pretrained_cfg": {"mean": [0.1, 0.5, 0.5]}}, ("mean 0.1 0.5 0.5, not",)),
        (
            "config.json",
            {"pretrained_cfg": {"input_size": [3, 9, 9], "interpolation": "bicubic"}},
            ("crop 9, not 160", "interpolation bicubic, not bilinear"),
        ),
        ("preprocessor_config.json", {"image_std": HALF, "resample": 2, "size": 160}, ()),
        (
            "preprocessor_config.json",
            {"image_std": [0.2] * 3, "resample": 3, "crop_size": {"height": 224, "width": 224}},
            ("std 0.2 0.2 0.2, not 0.5 0.5 0.5", "crop 224, not 160", "interpolation bicubic"),
        ),
        ("config.json", {"hidden_size": 9}, NONE),
        ("config.json", [1], NONE),
        ("config.json", {"pretrained_cfg": {"mean": 3, "std": ["x"]}}, NONE),
        ("preprocessor_config.json", {"resample": [2], "size": {"shortest_edge": 9}}, NONE),
    ],
)
def test_what_is_unlike_is_named(
    file: str, content: Any, unlike: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    remark = remark_on_preprocessing(tmp_path, resolve_recipe(NAME))
    assert all(part in remark for part in unlike)
    assert bool(remark) == bool(unlike)


def test_means_of_other_scales_and_orders_are_compared_as_colours(tmp_path: Path) -> None:
    """Caffe's are of values up to 255, blue first."""
    recipe = resolve_recipe("resnet50-caffe-pool")
    mean = [value / 255 for value in recipe.normalise.mean[::-1]]
    for stated, unlike in ((mean, False), (mean[::-1], True)):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": stated}))
        assert bool(remark_on_preprocessing(tmp_path, recipe)) == unlike


def test_extract_logs_it(tmp_path: Path) -> None:
    state = dict(load_weights(resolve_recipe(NAME), "random:0").state)
    (tmp_path / "w").mkdir()
    save_file({k: torch.clone(v) for k, v in state.items()}, tmp_path / "w/model.safetensors")
    (tmp_path / "w/config.json").write_text(json.dumps({"pretrained_cfg": {"input_size": [3, 9]}}))
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    monitor = Recorder()
    compute = pipeline.Compute(weights=tmp_path / "w")
    pipeline.extract(
        [tmp_path / "a.png"], tmp_path / "out", recipe=NAME, compute=compute, monitor=monitor
    )
    (line,) = (line for line in monitor.lines if "states other preprocessing" in line)
    assert f"{tmp_path / 'w'} states" in line
    assert "crop 9, not 160" in line
