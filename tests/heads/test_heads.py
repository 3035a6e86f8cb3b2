"""Heads: closed forms against solvers, training that learns, files that give the same head."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.datasets.manifest import ImageEntry
from pipeline.heads.catalogue import HEADS, make_head
from pipeline.heads.files import FeatureIdentity, TrainedHead, load_head
from pipeline.heads.interface import Head, History
from pipeline.heads.pairs import HeadError, join_pairs
from pipeline.heads.sampling import batches_with_siblings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.recall import recall_table
from pipeline.shards.read import FeatureSet
from tests.heads.made import pairs
from tests.shards.sample import SHAPE, build

UMASK = os.umask(0)
os.umask(UMASK)

SMALL: dict[str, Any] = {"hidden": 16, "dim": 8, "epochs": 12, "batch_size": 40, "dropout": 0.0}


def fitted(kind: str, seed: int = 0, **settings: Any) -> tuple[Head, History]:
    head = make_head(kind, settings, (12,), (8,))
    return head, head.fit(pairs(60), pairs(20, seed=1), seed, lambda done, total, failed: None)


def rsum(head: Head) -> float:
    test = pairs(40, seed=2)
    return recall_table(
        Embeddings(
            test.image_ids,
            head.embed_images(test.images),
            test.caption_ids,
            test.caption_image_ids,
            head.embed_captions(test.captions),
            head.similarity,
            {},
        )
    )["rsum"]


@pytest.mark.parametrize(("kind", "settings"), [("ridge", {}), ("two-branch", SMALL)])
def test_heads_learn_what_can_be_learnt(kind: str, settings: dict[str, Any]) -> None:
    assert rsum(make_head(kind, settings, (12,), (8,))) < 150
    assert rsum(fitted(kind, **settings)[0]) > 350


def test_ridge_equals_least_squares_on_stacked_rows() -> None:
    train = pairs(60)
    head, history = fitted("ridge", ridge=1e-2)
    x = train.captions.astype(np.float64)
    y = train.images[train.owner].astype(np.float64)
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
    np.testing.assert_array_equal(head.embed_images(train.images), train.images)


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
    features = pairs(50, seed=3).captions
    together = head.embed_captions(features)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    alone = np.concatenate([head.embed_captions(features[i : i + 1]) for i in range(len(features))])
    np.testing.assert_allclose(alone, together, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
def test_batches_hold_every_pair_once_and_a_sibling_each(batch_size: int) -> None:
    owner = np.repeat(np.arange(6), [3, 1, 2, 5, 1, 2])
    sampled: list[int] = []
    for rows in batches_with_siblings(owner, batch_size, np.random.default_rng(0)):
        assert len(set(rows.tolist())) == len(rows)
        assert len(np.unique(owner[rows])) >= 2, "one image alone has no negative"
        assert (np.diff(rows) > 0).all()
        for image in np.unique(owner[rows]):
            here = int((owner[rows] == image).sum())
            assert here >= min(2, int((owner == image).sum()))
        sampled += rows.tolist()
    assert set(sampled) == set(range(len(owner)))


@pytest.mark.parametrize(
    ("name", "settings", "shape", "message"),
    [
        ("two-brunch", {}, (12,), "did you mean two-branch"),
        ("ridge", {"lambda": 1.0}, (12,), r"no setting 'lambda'; it has ridge"),
        ("two-branch", {"hidden": 1.5}, (12,), "expected int"),
        ("two-branch", {"dropout": True}, (12,), "expected float"),
        ("two-branch", {"dropout": 1.0}, (12,), "below 1"),
        ("two-branch", {"epochs": 0}, (12,), "at least 1"),
        ("two-branch", {"margin": float("nan")}, (12,), "at least 0"),
        ("ridge", {"ridge": "1e-4"}, (12,), "YAML takes 1e-4 for text"),
        ("ridge", {"ridge": float("inf")}, (12,), "at least 0"),
        ("two-branch", {}, (7, 7, 12), r"rows of shape \(7, 7, 12\)"),
    ],
)
def test_what_a_head_cannot_take_is_refused_before_work(
    name: str, settings: dict[str, object], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(HeadError, match=message):
        make_head(name, settings, shape, (8,))


def test_a_single_image_or_a_diverging_loss_is_refused() -> None:
    head = make_head("two-branch", SMALL, (12,), (8,))
    with pytest.raises(HeadError, match="at least 2"):
        head.fit(pairs(1), pairs(2), 0, lambda done, total, failed: None)
    with pytest.raises(HeadError, match="learning rate"):
        fitted("two-branch", **{**SMALL, "learning_rate": 1e30})


@pytest.mark.parametrize("kind", HEADS)
def test_saved_and_loaded_heads_embed_the_same(tmp_path: Path, kind: str) -> None:
    settings = SMALL if kind == "two-branch" else {}
    head, history = fitted(kind, **settings)
    image, caption = (
        FeatureIdentity(s, "0" * 16, "none", d) for s, d in (("i", (12,)), ("c", (8,)))
    )
    trained = TrainedHead(
        "made", kind, settings, 0, "made", "train", "val", image, caption, history, "tests", head
    )
    trained.save(tmp_path / "a")
    trained.save(tmp_path / "b")
    for name in ("head.json", "head.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).stat().st_mode & 0o444 == 0o444 & ~UMASK
    loaded = load_head(tmp_path / "a")
    assert loaded.history == history
    assert (loaded.images, loaded.captions) == (image, caption)
    test = pairs(9, seed=4)
    for side, features in (("images", test.images), ("captions", test.captions)):
        ours, theirs = (getattr(h, f"embed_{side}")(features) for h in (head, loaded.head))
        np.testing.assert_array_equal(ours, theirs)

    data = bytearray((tmp_path / "a" / "head.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a" / "head.safetensors").write_bytes(data)
    with pytest.raises(HeadError, match="not the file"):
        load_head(tmp_path / "a")
    facts = json.loads((tmp_path / "b" / "head.json").read_text())
    del facts["seed"]
    (tmp_path / "b" / "head.json").write_text(json.dumps(facts))
    with pytest.raises(HeadError, match="damaged"):
        load_head(tmp_path / "b")
    with pytest.raises(HeadError, match="pipeline train"):
        load_head(tmp_path / "c")


def test_features_are_joined_by_id_and_must_be_the_heads_own(tmp_path: Path) -> None:
    build(tmp_path / "images", 3, recipe={"name": "x"}, stop_after=None)
    features = FeatureSet(tmp_path / "images")
    a, b, c = features.ids
    # The made set stands for both sides: captions of image x are called x#k.
    entries = (ImageEntry("i", "i.jpg", "train", ()),)
    with pytest.raises(HeadError, match="no pairs"):
        join_pairs(entries, features, features)
    identity = FeatureIdentity.of(features)
    assert identity.row_shape == SHAPE
    identity.require(features, "image")
    build(tmp_path / "other", 3, recipe={"name": "y"})
    with pytest.raises(HeadError, match=r"'y'.*fitted on 'x'"):
        identity.require(FeatureSet(tmp_path / "other"), "image")
    assert len({a, b, c}) == 3
