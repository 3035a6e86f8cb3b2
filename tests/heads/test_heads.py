"""Heads: closed forms against solvers, training that learns, files that give the same head."""

import json
import os
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
from pipeline.heads.head_types import HEADS, head_kind, make_head
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.store.schema import convert
from pipeline.store.shards.feature_set import FeatureSet
from tests.heads.factories import (
    GRID,
    SEQUENCE,
    all_of,
    entries_of,
    grid_pairs,
    inputs,
    inputs_of_parts,
    pairs,
    rsum,
    vector_pairs,
    write_features,
)
from tests.store.shards.factories import SHAPE, build

UMASK = os.umask(0)
os.umask(UMASK)

WORDS = inputs_of_parts((8,), SEQUENCE)

SMALL: dict[str, Any] = {"hidden": 16, "dim": 8, "epochs": 12, "batch_size": 40, "dropout": 0.0}


def of_words(images: int, seed: int = 0) -> Pairs:
    return vector_pairs(images, SEQUENCE, seed=seed)


def fitted(kind: str, seed: int = 0, **settings: Any) -> tuple[Head, History]:
    head = make_head(kind, settings, inputs())
    return head, head.fit(pairs(60), pairs(20, seed=1), FitOptions(seed))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ridge", {}),
        ("two-branch", SMALL),
        ("two-branch", {**SMALL, "text_to_image_weight": 0.0, "structure_weight": 0.0}),
        ("two-branch", {**SMALL, "branches": "linear"}),
        ("two-branch", {**SMALL, "structure_weight": 0.0, "siblings": False}),
    ],
)
def test_heads_learn_what_can_be_learnt(kind: str, settings: dict[str, Any]) -> None:
    assert rsum(fitted(kind, **settings)[0], pairs(40, seed=2)) > 350


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


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone() -> None:
    torch.manual_seed(5)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    first, history = fitted("two-branch", **SMALL)
    assert torch.rand(1) == drawn
    again, _ = fitted("two-branch", **SMALL)
    other, _ = fitted("two-branch", seed=1, **SMALL)
    for name, value in first.tensors().items():
        assert torch.equal(value, again.tensors()[name]), name
    assert any(not torch.equal(v, other.tensors()[n]) for n, v in first.tensors().items())
    assert [entry["epoch"] for entry in history] == list(range(1, 13))
    assert history[0]["loss"] > history[-1]["loss"]
    best = max(history, key=lambda entry: entry["rsum"])
    assert [entry["best"] for entry in history].index(1.0) == best["epoch"] - 1


def test_embeddings_do_not_depend_on_their_company() -> None:
    head, _ = fitted("two-branch", **SMALL)
    rows = pairs(50, seed=3).captions
    features, together = all_of(rows), head.embed_captions(rows)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    alone = np.concatenate([head.embed_captions(ArrayRows(row[None])) for row in features])
    np.testing.assert_allclose(alone, together, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "shape", "message"),
    [
        ("two-brunch", {}, (12,), "did you mean two-branch"),
        ("ridge", {"lambda": 1.0}, (12,), r"no setting 'lambda'; it has ridge"),
        (
            "two-branch",
            {"hidden": 1.5},
            (12,),
            "got `float`, found 1.5; its default is",
        ),
        ("two-branch", {"dropout": True}, (12,), "Expected `float`, got `bool`"),
        ("two-branch", {"dropout": 1.0}, (12,), "< 1.0"),
        ("two-branch", {"epochs": 0}, (12,), ">= 1, found 0"),
        ("two-branch", {"margin": float("nan")}, (12,), "found nan"),
        ("ridge", {"ridge": "1e-4"}, (12,), "YAML reads 1e-4 as text"),
        ("ridge", {"ridge": float("inf")}, (12,), "found inf"),
        ("two-branch", {"branches": "cubic"}, (12,), "one of 'nonlinear', 'linear', found 'cubic'"),
        ("relational", {"lr_milestones": 9}, (12,), r"Expected `array`.*\(9, 15\)"),
        ("relational", {"lr_milestones": [9, 4]}, (12,), "ascending"),
        ("relational", {"lr_milestones": [9, 15, 20]}, (12,), "of length 2"),
        ("relational", {"lr_milestones": [0, 9]}, (12,), ">= 1"),
        ("vse", {"loss": "hardest"}, (12,), r"'info_nce', .* its default is 'sum_of_hinges'$"),
        ("two-branch", {}, (7, 7, 12), r"rows of shape \(7, 7, 12\)"),
    ],
)
def test_what_a_head_cannot_take_is_refused_before_work(
    name: str, settings: dict[str, object], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(HeadError, match=message):
        make_head(name, settings, inputs(shape))


def test_a_single_image_or_a_diverging_loss_is_refused() -> None:
    head = make_head("two-branch", SMALL, inputs())
    with pytest.raises(HeadError, match="at least 2"):
        head.fit(pairs(1), pairs(2), FitOptions(0))
    with pytest.raises(HeadError, match="learning rate"):
        fitted("two-branch", **{**SMALL, "learning_rate": 1e30})


def trained_head(head: Head, history: History, kind: str, settings: dict[str, Any]) -> TrainedHead:
    return TrainedHead(
        "made",
        kind,
        settings,
        0,
        "made",
        "train",
        "val",
        inputs(),
        {},
        None,
        history,
        "tests",
        head,
    )


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


@pytest.mark.parametrize(("kind", "settings"), [("ridge", {}), ("two-branch", SMALL)])
def test_saved_and_loaded_heads_embed_the_same(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    head, history = fitted(kind, **settings)
    trained = trained_head(head, history, kind, settings)
    trained.save(tmp_path / "a")
    trained.save(tmp_path / "b")
    for name in ("head.json", "head.safetensors", "history.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).stat().st_mode & 0o444 == 0o444 & ~UMASK
    assert json.loads((tmp_path / "a" / "history.json").read_text()) == history
    loaded = load_head(tmp_path / "a")
    assert loaded.history == history
    assert loaded.inputs == inputs()
    test = pairs(9, seed=4)
    for embed, rows in (("embed_images", test.images), ("embed_captions", test.captions)):
        np.testing.assert_array_equal(getattr(loaded.head, embed)(rows), getattr(head, embed)(rows))

    data = bytearray((tmp_path / "a" / "head.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a" / "head.safetensors").write_bytes(data)
    with pytest.raises(HeadError, match="not the file"):
        load_head(tmp_path / "a")
    values = json.loads((tmp_path / "b" / "head.json").read_text())
    unknown = values | {"kind": "recurrent"}
    (tmp_path / "b" / "head.json").write_text(json.dumps(unknown))
    with pytest.raises(
        HeadError, match=r"no head is called 'recurrent'.*run `pipeline train` again"
    ):
        load_head(tmp_path / "b")
    without_seed = {name: value for name, value in values.items() if name != "seed"}
    for wrong in (
        without_seed,
        values | {"word_vectors": ["x"]},
        values | {"history": [1]},
        values | {"history": [{"epoch": {}}]},
        values
        | {
            "inputs": values["inputs"]
            | {"captions": values["inputs"]["captions"] | {"recipe": ["x"]}}
        },
    ):
        (tmp_path / "b" / "head.json").write_text(json.dumps(wrong))
        with pytest.raises(HeadError, match="damaged"):
            load_head(tmp_path / "b")
    with pytest.raises(HeadError, match="pipeline train"):
        load_head(tmp_path / "c")


def test_a_trained_head_embeds_plain_arrays() -> None:
    head, history = fitted("two-branch", **SMALL)
    trained = trained_head(head, history, "two-branch", SMALL)
    test = pairs(9, seed=4)
    images, captions = all_of(test.images), all_of(test.captions)
    found = trained.embed_images(images.astype(np.float64).tolist())
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, head.embed_images(test.images))
    found = trained.embed_captions(captions)
    np.testing.assert_array_equal(found, head.embed_captions(test.captions))
    for wrong in (images[:, :3], captions):
        with pytest.raises(HeadError, match="image features of shape"):
            trained.embed_images(wrong)
    with pytest.raises(HeadError, match="NaN"):
        trained.embed_captions(np.full_like(captions, np.nan))
    assert trained.chosen["best"] == 1


def test_a_split_is_embedded_from_the_heads_own_features(tmp_path: Path) -> None:
    test = pairs(20, seed=5)
    write_features(tmp_path / "i", test.image_ids, all_of(test.images))
    write_features(tmp_path / "c", test.caption_ids, all_of(test.captions))
    sets = FeatureSet(tmp_path / "i"), FeatureSet(tmp_path / "c")
    head, history = fitted("ridge")
    values = {**vars(trained_head(head, history, "ridge", {})), "inputs": HeadInputs.of(*sets)}
    trained = TrainedHead(**values)
    each = embed_split(trained, entries_of(test), *sets, tmp_path / "e.h5", {})
    np.testing.assert_array_equal(each.caption_embeddings, head.embed_captions(test.captions))
    of_means = TrainedHead(**{**values, "average_captions": True})
    mean = embed_split(of_means, entries_of(test), *sets, tmp_path / "m.h5", {})
    assert (mean.caption_image_ids, mean.image_ids) == (each.image_ids, each.image_ids)
    assert mean.caption_ids[0] == f"{each.image_ids[0]}#mean"
    assert mean.provenance["average_captions"] is True
    rows = AveragedRows(test.captions, test.image_of_caption)
    np.testing.assert_array_equal(mean.caption_embeddings, head.embed_captions(rows))
    assert recall_table(mean)["rsum"] > recall_table(each)["rsum"]
    other = TrainedHead(**{**values, "inputs": inputs()})
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


def test_every_kind_has_settings_with_ranges() -> None:
    for name in HEADS:
        for field in head_kind(name).settings.__dataclass_fields__.values():
            assert "type" in field.metadata, f"{name}: {field.name}"


def test_what_encoders_have_seen_goes_along_with_the_embeddings(tmp_path: Path) -> None:
    build(tmp_path / "images", 3, trained_on=("ImageNet-1k",))
    build(tmp_path / "captions", 3, trained_on=("eli5", "flickr30k-captions"))
    build(tmp_path / "own", 3)
    images, captions, own = (FeatureSet(tmp_path / n) for n in ("images", "captions", "own"))
    head, history = fitted("ridge")
    trained = trained_head(head, history, "ridge", {})
    found = pretraining_of(trained, images, captions, "flickr8k")
    assert found == {
        "pretraining": {"images": ["ImageNet-1k"], "captions": ["eli5", "flickr30k-captions"]},
        "has_seen": {"captions": ["flickr30k-captions"]},
    }
    assert "has_seen" not in pretraining_of(trained, images, captions, "scenes")
    assert pretraining_of(trained, own, own, "flickr8k") == {}
    started = replace(trained, word_vectors={"name": "m", "sha256": "", "trained_on": ["COCO"]})
    assert pretraining_of(started, own, own, "coco")["has_seen"] == {"word vectors": ["COCO"]}


_SEQUENCE: dict[str, Any] = {"dim": 8, "word_dim": 6, "mean_hinge_epochs": 1}


@pytest.mark.parametrize("images", [1, 2, 5, 20])
@pytest.mark.parametrize(
    ("kind", "settings", "made", "inputs_of"),
    [
        ("cca", {}, pairs, inputs()),
        ("cca", {"dim": 64, "image_scaling": "rooted"}, pairs, inputs()),
        ("cca", {"regularisation": "absolute", "scaling": "eigenvalue"}, pairs, inputs()),
        ("ridge", {"image_scaling": "centred"}, pairs, inputs()),
        ("two-branch", {"hidden": 16, "dim": 8}, pairs, inputs()),
        ("two-branch", {"branches": "linear", "dim": 8}, pairs, inputs()),
        *(
            ("vse", {**_SEQUENCE, "loss": loss, "image_scaling": "standardised"}, of_words, WORDS)
            for loss in ("sum_of_hinges", "max_of_hinges", "sampled_contrast", "info_nce")
        ),
        ("word2visualvec", {"hidden": 8, "hidden_size": 6, "word_dim": 4}, of_words, WORDS),
        ("scan", {"dim": 8, "word_dim": 4}, grid_pairs, inputs_of_parts(GRID, SEQUENCE)),
        ("relational", {"dim": 8, "word_dim": 8}, grid_pairs, inputs_of_parts(GRID, SEQUENCE)),
    ],
)
def test_every_head_is_fitted_to_a_few_images(
    kind: str, settings: dict[str, Any], made: Any, inputs_of: HeadInputs, images: int
) -> None:
    """Two images are enough for each, whatever the sizes of batches, spaces and negatives."""
    if hasattr(head_kind(kind).settings, "epochs"):
        settings = {**settings, "epochs": 2}
    head, lines = make_head(kind, settings, inputs_of), list[str]()
    train, validation = made(images), made(1, seed=1)
    options = FitOptions(0, log=lines.append)
    if images == 1:
        with pytest.raises(HeadError, match=r"1 training image found; at least 2 .* add images"):
            head.fit(train, validation, options)
        return
    history = head.fit(train, validation, options)
    for rows in (head.embed_images(train.images), head.embed_captions(train.captions)):
        assert np.isfinite(rows).all()
    if settings.get("dim") == 64:
        found = len(head.tensors()["correlations"])
        assert lines == [
            f"CCA: {found} coordinate{'s' * (found > 1)}, not 64, from {images} images "
            f"and {3 * images} captions"
        ]
        assert {entry["coordinates"] for entry in history} == {found}
        assert found == min(images - 1, 6)  # the made features have six dimensions
    if "epochs" in settings:
        # One validation image finds its captions in every epoch: the last one has learnt most.
        assert [entry["best"] for entry in history] == [0.0, 1.0]
        assert lines[0].startswith("validation images are too few to distinguish epochs (1)")
