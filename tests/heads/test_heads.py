"""Heads: closed forms against solvers, architectures of papers, damaged files, embedded splits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.heads import HeadError
from pipeline.heads.architectures.two_branch import TwoBranchSettings, task
from pipeline.heads.base import FitOptions, Head, History
from pipeline.heads.embed import embed_split, pretraining_of
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.trained_head import load_head
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.store.schema import convert
from pipeline.store.shards.feature_set import FeatureSet
from tests.heads.factories import (
    all_of,
    entries_of,
    inputs,
    pairs,
    trained_head,
    write_features,
)
from tests.store.shards.factories import SHAPE, build


def fitted(kind: str, seed: int = 0, **settings: Any) -> tuple[Head, History]:
    head = make_head(kind, settings, inputs())
    return head, head.fit(pairs(60), pairs(20, seed=1), FitOptions(seed))


def test_ridge_equals_least_squares_on_stacked_rows() -> None:
    train = pairs(60)
    captions, images = all_of(train.captions), all_of(train.images)
    head, history = fitted("ridge", ridge=1e-2)
    x = captions.astype(np.float64)
    y = images[train.image_of_caption].astype(np.float64)
    xc, yc = x - x.mean(0), y - y.mean(0)
    penalty = np.sqrt(1e-2 * np.square(xc).sum() / 8)
    stacked = np.vstack([xc, penalty * np.eye(8)]), np.vstack([yc, np.zeros((8, 12))])
    weight = np.linalg.lstsq(*stacked, rcond=None)[0]
    expected = (x - x.mean(0)) @ weight + y.mean(0)
    np.testing.assert_allclose(head.embed_captions(train.captions), expected, rtol=1e-4, atol=1e-4)
    exact = fitted("ridge", ridge=0.0)[1][0]["mean_squared_error"]
    assert exact < history[0]["mean_squared_error"], "no ridge is no hidden ridge"
    assert history[0]["mean_squared_error"] == pytest.approx(
        np.square(expected - y).mean(), rel=1e-5
    )
    np.testing.assert_array_equal(head.embed_images(train.images), images)


def test_two_branches_are_those_of_the_paper() -> None:
    settings = TwoBranchSettings()
    made = task(settings, inputs((4096,), (6000,)))
    net = made.build(None)
    shapes = [tuple(p.shape) for p in net["image"].parameters()]
    assert shapes == [(2048, 4096), (2048,), (512, 2048), (512,), (512,), (512,)]
    optimiser = made.optimiser(net)
    assert isinstance(optimiser, torch.optim.SGD)
    group = optimiser.param_groups[0]
    wanted = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "dampening": 0, "nesterov": False}
    assert {name: group[name] for name in wanted} == wanted
    rates = [made.rate(epoch, []) for epoch in (0, 9, 10, 19, 20, 29)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    s = settings
    weights = s.text_to_image_weight, s.structure_weight
    assert (s.margin, *weights, s.top_k) == (0.1, 2.0, 0.2, 50)
    assert (s.batch_size, s.dropout, s.epochs) == (1500, 0.5, 30)
    linear = task(TwoBranchSettings(branches="linear"), inputs((4096,), (6000,))).build(None)
    assert [tuple(p.shape) for p in linear["caption"].parameters()] == [(512, 6000), (512,)]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("two-brunch", {}, "did you mean two-branch"),
        ("ridge", {"lambda": 1.0}, r"no setting 'lambda'; it has ridge"),
        ("two-branch", {"hidden": 1.5}, "got `float`, found 1.5; its default is"),
        ("two-branch", {"dropout": True}, "Expected `float`, got `bool`"),
        ("two-branch", {"dropout": 1.0}, "< 1.0"),
        ("two-branch", {"epochs": 0}, ">= 1, found 0"),
        ("ridge", {"ridge": "1e-4"}, "YAML reads 1e-4 as text"),
        ("ridge", {"ridge": float("inf")}, "found inf"),
        ("two-branch", {"branches": "cubic"}, "one of 'nonlinear', 'linear', found 'cubic'"),
        ("relational", {"lr_milestones": 9}, r"Expected `array`.*\(9, 15\)"),
        ("relational", {"lr_milestones": [9, 4]}, "ascending"),
        ("relational", {"lr_milestones": [9, 15, 20]}, "of length 2"),
        ("vse", {"loss": "hardest"}, r"'info_nce', .* its default is 'sum_of_hinges'$"),
    ],
)
def test_what_a_head_cannot_take_is_refused_before_work(
    name: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(HeadError, match=message):
        make_head(name, settings, inputs())


@pytest.mark.parametrize("given", ["given", "unit", "centred"])
def test_ridge_prepares_images_alike_in_training_and_embedding(given: str) -> None:
    train, other = pairs(60), pairs(20, seed=5)
    images = all_of(train.images).astype(np.float64)
    centre = images.mean(0) if given == "centred" else 0.0

    def prepared(rows: np.ndarray) -> np.ndarray:
        moved = rows - centre
        return rows if given == "given" else moved / np.linalg.norm(moved, axis=1, keepdims=True)

    head, _ = fitted("ridge", image_scaling=given)
    plain = make_head("ridge", {}, inputs())
    rows = ArrayRows(prepared(images).astype(np.float32))
    plain.fit(replace(train, images=rows), pairs(20, seed=1), FitOptions(0))
    expected = prepared(all_of(other.images).astype(np.float64))
    np.testing.assert_allclose(head.embed_images(other.images), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        head.embed_captions(other.captions), plain.embed_captions(other.captions), atol=1e-5
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "recurrent"}, r"no head is called 'recurrent'.*run `pipeline train` again"),
        ({"seed": None}, "damaged"),
        ({"word_vectors": ["x"]}, "damaged"),
        ({"history": [1]}, "damaged"),
        ({"history": [{"epoch": {}}]}, "damaged"),
        ({"inputs": {"images": {}}}, "damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    trained_head(*fitted("ridge"), "ridge").save(tmp_path)
    values = json.loads((tmp_path / "head.json").read_text()) | changes
    (tmp_path / "head.json").write_text(json.dumps(values))
    with pytest.raises(HeadError, match=message):
        load_head(tmp_path)


def test_other_tensors_and_folders_without_a_head_are_refused(tmp_path: Path) -> None:
    trained_head(*fitted("ridge"), "ridge").save(tmp_path)
    data = bytearray((tmp_path / "head.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "head.safetensors").write_bytes(data)
    with pytest.raises(HeadError, match="not the file"):
        load_head(tmp_path)
    with pytest.raises(HeadError, match="pipeline train"):
        load_head(tmp_path / "nowhere")


def test_a_split_is_embedded_from_the_heads_own_features(tmp_path: Path) -> None:
    test = pairs(20, seed=5)
    write_features(tmp_path / "i", test.image_ids, all_of(test.images))
    write_features(tmp_path / "c", test.caption_ids, all_of(test.captions))
    sets = FeatureSet(tmp_path / "i"), FeatureSet(tmp_path / "c")
    head, history = fitted("ridge")
    trained = trained_head(head, history, "ridge", inputs=HeadInputs.of(*sets))
    each = embed_split(trained, entries_of(test), *sets, tmp_path / "e.h5", {})
    np.testing.assert_array_equal(each.caption_embeddings, head.embed_captions(test.captions))
    of_means = replace(trained, average_captions=True)
    mean = embed_split(of_means, entries_of(test), *sets, tmp_path / "m.h5", {})
    assert (mean.caption_image_ids, mean.image_ids) == (each.image_ids, each.image_ids)
    assert mean.caption_ids[0] == f"{each.image_ids[0]}#mean"
    assert mean.provenance["average_captions"] is True
    rows = AveragedRows(test.captions, test.image_of_caption)
    np.testing.assert_array_equal(mean.caption_embeddings, head.embed_captions(rows))
    assert recall_table(mean)["rsum"] > recall_table(each)["rsum"]
    other = replace(trained, inputs=inputs())
    with pytest.raises(HeadError, match="fitted on 'i'"):
        embed_split(other, entries_of(test), *sets, tmp_path / "o.h5", {})


def test_features_of_another_recipe_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "images", 3, recipe={"name": "x"})
    features = FeatureSet(tmp_path / "images")
    side = FeatureSpec.of(features)
    assert side.shape == SHAPE
    side.require(features, "image")
    assert convert(json.loads(json.dumps(vars(side))), FeatureSpec) == side
    build(tmp_path / "other", 3, recipe={"name": "y"})
    with pytest.raises(HeadError, match=r"'y'.*fitted on 'x'"):
        side.require(FeatureSet(tmp_path / "other"), "image")


def test_what_encoders_have_seen_goes_along_with_the_embeddings(tmp_path: Path) -> None:
    build(tmp_path / "images", 3, trained_on=("ImageNet-1k",))
    build(tmp_path / "captions", 3, trained_on=("eli5", "flickr30k-captions"))
    build(tmp_path / "own", 3)
    images, captions, own = (FeatureSet(tmp_path / n) for n in ("images", "captions", "own"))
    head, history = fitted("ridge")
    trained = trained_head(head, history, "ridge")
    found = pretraining_of(trained, images, captions, "flickr8k")
    assert found == {
        "pretraining": {"images": ["ImageNet-1k"], "captions": ["eli5", "flickr30k-captions"]},
        "has_seen": {"captions": ["flickr30k-captions"]},
    }
    assert "has_seen" not in pretraining_of(trained, images, captions, "scenes")
    assert pretraining_of(trained, own, own, "flickr8k") == {}
    started = replace(trained, word_vectors={"name": "m", "sha256": "", "trained_on": ["COCO"]})
    assert pretraining_of(started, own, own, "coco")["has_seen"] == {"word vectors": ["COCO"]}
