"""What every head does: it learns, is repeated by its seed, resumed, saved and loaded, refuses."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.heads import HeadError
from pipeline.heads.base import FitOptions, Head
from pipeline.heads.head_types import HEADS, head_kind, make_head
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import load_head
from pipeline.heads.training.trainer import NetworkHead
from pipeline.testing import HeadCase, HeadSuite
from tests.heads.factories import (
    CHANNELS,
    COUNTS,
    GRID,
    SEQUENCE,
    all_of,
    grid_pairs,
    inputs_of_one_model,
    inputs_of_parts,
    pairs,
    pairs_of_one_model,
    rsum,
    trained_head,
    vector_pairs,
)

UMASK = os.umask(0)
os.umask(UMASK)


def of_words(images: int, seed: int = 0) -> Pairs:
    return vector_pairs(images, SEQUENCE, seed=seed)


def of_parts(images: int, seed: int = 0) -> Pairs:
    return vector_pairs(images, COUNTS, SEQUENCE, seed=seed)


BRANCHES = {"hidden": 16, "dim": 8, "epochs": 12, "batch_size": 40, "dropout": 0.0}
SCAN = {"dim": 32, "word_dim": 16, "batch_size": 16, "learning_rate": 0.01, "epochs": 3}
NODES = {
    "dim": 32, "attention_heads": 4, "word_dim": 16, "pools": 2, "batch_size": 32,
    "learning_rate": 2e-3, "epochs": 12, "lr_milestones": [11, 12],
}  # fmt: skip
LAYERS = {
    "hidden": 32, "word_dim": 8, "hidden_size": 16, "batch_size": 25, "learning_rate": 3e-3,
    "epochs": 12,
}  # fmt: skip
STATES = {
    "dim": 32, "word_dim": 16, "batch_size": 32, "learning_rate": 0.01, "epochs": 6,
    "similarity": "cosine", "l2_normalise": "both", "image_scaling": "standardised",
    "loss": "max_of_hinges", "mean_hinge_epochs": 1,
}  # fmt: skip
OF_GRIDS = inputs_of_parts(GRID, SEQUENCE)

KINDS = {
    "cca": HeadCase("cca", least=450),
    "ridge": HeadCase("ridge"),
    "two-branch": HeadCase("two-branch", BRANCHES),
    "vse": HeadCase("vse", STATES, of_words, inputs_of_parts((CHANNELS,), SEQUENCE), 400, 200),
    "word2visualvec": HeadCase(
        "word2visualvec", LAYERS, of_parts, inputs_of_parts((CHANNELS,), COUNTS, SEQUENCE), 400, 200
    ),
    "scan": HeadCase("scan", SCAN, grid_pairs, OF_GRIDS, 400, 200),
    "relational": HeadCase(
        "relational", {**NODES, "layer": "relation"}, grid_pairs, OF_GRIDS, 290, 200
    ),
    "zero-shot": HeadCase("zero-shot", {}, pairs_of_one_model, inputs_of_one_model(), 600),
}
VARIANTS = {
    **KINDS,
    "one direction": HeadCase(
        "two-branch", {**BRANCHES, "text_to_image_weight": 0.0, "structure_weight": 0.0}
    ),
    "linear branches": HeadCase("two-branch", {**BRANCHES, "branches": "linear"}),
    "no siblings": HeadCase("two-branch", {**BRANCHES, "structure_weight": 0.0, "siblings": False}),
    "no batch norm": HeadCase("two-branch", {**BRANCHES, "batch_norm": False}),
    "gru nodes": replace(KINDS["relational"], settings={**NODES, "layer": "gru"}),
    "pooled nodes": replace(
        KINDS["relational"],
        settings={**NODES, "loss": "pooling", "pooling": "max", "layer": "graph-attention"},
    ),
    "cross-attention": replace(
        KINDS["relational"], settings={**NODES, "loss": "cross-attention", "layer": "transformer"}
    ),
}

of_all = pytest.mark.parametrize("case", KINDS.values(), ids=KINDS)
of_trained = pytest.mark.parametrize(
    "case",
    [case for case in KINDS.values() if case.is_trained],
    ids=[name for name, case in KINDS.items() if case.is_trained],
)


class TestHeads(HeadSuite):
    @pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
    def case(self, request: pytest.FixtureRequest) -> HeadCase:
        case: HeadCase = request.param
        return case


def sides(case: HeadCase, head: Head, images: int = 9) -> list[tuple[Any, Any]]:
    """Return the function that embeds images or captions, and rows that it has not seen."""
    made = case.pairs(images, seed=4)
    return [(head.embed_images, made.images), (head.embed_captions, made.captions)]


def require_same(head: Head, other: Head, case: HeadCase) -> None:
    for (embed, rows), (again, _) in zip(sides(case, head), sides(case, other), strict=True):
        np.testing.assert_array_equal(embed(rows), again(rows))


def test_every_head_has_a_case() -> None:
    assert sorted(KINDS) == sorted(HEADS)


@pytest.mark.parametrize("name", VARIANTS)
def test_it_learns_what_can_be_learnt(name: str) -> None:
    head, history = VARIANTS[name].fitted
    case = VARIANTS[name]
    assert rsum(head, case.pairs(40, seed=2)) >= case.least
    assert [entry["epoch"] for entry in history] == [*range(1, len(history) + 1)]
    if case.is_trained:
        assert history[0]["loss"] > history[-1]["loss"]
        best = max(history, key=lambda entry: entry["rsum"])
        assert [entry["best"] for entry in history].index(1.0) == best["epoch"] - 1


@pytest.mark.parametrize(
    "name",
    [*VARIANTS, *(f"cca {one}" for one in ("unit", "rooted")), "ridge unit", "ridge centred"],
)
def test_its_modules_embed_as_it_does_with_gradients(name: str) -> None:
    kind, _, scaling = (
        name.partition(" ") if name.split()[0] in ("cca", "ridge") else (name, "", "")
    )
    case = VARIANTS[kind]
    head: Any = case.fitted[0]
    if scaling:
        head = case.head(image_scaling=scaling)
        head.fit(case.pairs(60), case.pairs(30, seed=1), FitOptions(0))
    for module, (embed, rows) in zip(head.towers().values(), sides(case, head), strict=False):
        given = torch.from_numpy(all_of(rows))
        if scaling == "rooted":
            given[:, 0] = 0  # where a root has no slope
        learnt = module(given.requires_grad_())
        expected = embed(ArrayRows(given.detach().numpy()))
        exact = isinstance(head, NetworkHead) or name in ("cca", "zero-shot")
        np.testing.assert_allclose(learnt.detach(), expected, rtol=0 if exact else 1e-6, atol=1e-6)
        if exact:
            np.testing.assert_array_equal(learnt.detach(), expected)
        learnt.sum().backward()
        assert given.grad is None or bool(given.grad.isfinite().all())
        assert any(
            tensor.grad is not None and bool(tensor.grad.any())
            for tensor in (given, *module.parameters())
        )


@of_trained
def test_a_fit_starts_from_a_trained_head_of_its_architecture(case: HeadCase) -> None:
    start, train = case.fitted[0].tensors(), case.pairs(25)
    before = {name: tensor.clone() for name, tensor in start.items()}
    losses = [
        case.head(epochs=1, batch_size=10).fit(train, case.pairs(12, seed=1), options)[0]["loss"]
        for options in (FitOptions(0), FitOptions(0, start=start), FitOptions(1, start=start))
    ]
    assert max(losses[1:]) < losses[0]
    assert losses[1] != losses[2], "the order of the batches depends on the seed"
    assert all(torch.equal(before[name], tensor) for name, tensor in start.items())
    with pytest.raises(HeadError, match="another architecture"):
        case.head().fit(train, train, FitOptions(0, start={"other": torch.zeros(1)}))


@of_all
def test_saved_and_loaded_it_embeds_arrays_the_same(case: HeadCase, tmp_path: Path) -> None:
    head, history = case.fitted
    trained = trained_head(head, history, case.kind, dict(case.settings), inputs=case.inputs)
    for folder in (tmp_path / "a", tmp_path / "b"):
        trained.save(folder)
    for name in ("head.json", "head.safetensors", "history.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).stat().st_mode & 0o444 == 0o444 & ~UMASK
    loaded = load_head(tmp_path / "a")
    assert (loaded.history, loaded.inputs, loaded.settings) == (
        history, case.inputs, case.settings
    )  # fmt: skip
    require_same(loaded.head, head, case)
    for of_arrays, (embed, rows) in zip(
        (loaded.embed_images, loaded.embed_captions), sides(case, head), strict=True
    ):
        array = all_of(rows)
        found = of_arrays(array.astype(np.float64).tolist())
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, embed(rows))
        np.testing.assert_allclose(of_arrays(array[0]), found[0], rtol=1e-4, atol=1e-5)
        assert of_arrays([]).shape == of_arrays(array[:0]).shape == (0, *found.shape[1:])
        with pytest.raises(HeadError, match="features of shape"):
            of_arrays(array[..., :3])
        with pytest.raises(HeadError, match="NaN"):
            of_arrays(np.full_like(array, np.nan))
    with pytest.raises(HeadError, match=r"`pipeline\.load_encoder` makes features of sentences"):
        loaded.embed_captions("a dog runs")


@of_all
def test_before_it_is_fitted_it_is_nothing(case: HeadCase) -> None:
    if case.is_trained or case.kind == "cca":
        with pytest.raises(HeadError, match="not fitted"):
            case.head().embed_captions(case.pairs(3).captions)


FEW: dict[str, HeadCase] = {
    **{name: case for name, case in KINDS.items() if name != "zero-shot"},
    "rooted cca": HeadCase("cca", {"dim": 64, "image_scaling": "rooted"}),
    "absolute cca": HeadCase("cca", {"regularisation": "absolute", "scaling": "eigenvalue"}),
    "centred ridge": HeadCase("ridge", {"image_scaling": "centred"}),
    **{
        loss: replace(KINDS["vse"], settings={**STATES, "loss": loss})
        for loss in ("sum_of_hinges", "max_of_hinges", "sampled_contrast", "info_nce")
    },
}


@pytest.mark.parametrize("images", [1, 2, 5])
@pytest.mark.parametrize("name", FEW)
def test_two_images_are_enough(name: str, images: int) -> None:
    """Whatever the sizes of batches, spaces and negatives."""
    case, lines = FEW[name], list[str]()
    head = case.head(**{"epochs": 2, "batch_size": 128} if case.is_trained else {})
    train, validation = case.pairs(images), case.pairs(1, seed=1)
    options = FitOptions(0, log=lines.append)
    if images == 1:
        with pytest.raises(HeadError, match=r"1 training image found; at least 2 .* add images"):
            head.fit(train, validation, options)
        return
    history = head.fit(train, validation, options)
    for rows in (head.embed_images(train.images), head.embed_captions(train.captions)):
        assert np.isfinite(rows).all()
    if case.settings.get("dim") == 64:
        found = len(head.tensors()["correlations"])
        assert found == images - 1, "centred images span no more"
        assert lines == [
            f"CCA: {found} coordinate{'s' * (found > 1)}, not 64, from {images} images "
            f"and {3 * images} captions"
        ]
        assert {entry["coordinates"] for entry in history} == {found}
    if case.is_trained:
        # One validation image finds its captions in every epoch: the last one has learnt most.
        assert [entry["best"] for entry in history] == [0.0, 1.0]
        assert lines[0].startswith("validation images are too few to distinguish epochs (1)")


@of_trained
def test_the_selection_is_a_setting_that_older_checkpoints_lack(case: HeadCase) -> None:
    asked: dict[str, Any] = {key: case.head(selection=key) for key in ("rsum", "map", "last")}
    plain = case.head()
    assert isinstance(plain, NetworkHead)
    flags = {key: (head.task.score, head.task.last_epoch) for key, head in asked.items()}
    assert flags == {"rsum": ("rsum", False), "map": ("map", False), "last": ("rsum", True)}
    assert asked["rsum"]._identity == plain._identity
    assert "selection" not in str(plain._identity)
    assert len({str(head._identity) for head in asked.values()}) == 3


def test_a_diverging_loss_is_refused() -> None:
    head = KINDS["two-branch"].head(learning_rate=1e30)
    with pytest.raises(HeadError, match="learning rate"):
        head.fit(pairs(40), pairs(20, seed=1), FitOptions(0))


def test_every_kind_has_settings_with_ranges() -> None:
    for name in HEADS:
        for declared in head_kind(name).settings.__dataclass_fields__.values():
            assert "type" in declared.metadata, f"{name}: {declared.name}"
        with pytest.raises(HeadError, match="has no setting 'x'"):
            make_head(name, {"x": 3}, KINDS[name].inputs)


_VECTORS, _GRIDS = (FeatureSpec(shape, {"name": "x"}, "0", "none") for shape in ((8,), (7, 7, 8)))


@pytest.mark.parametrize(
    ("names", "side", "spec", "message"),
    [
        ("cca ridge two-branch vse word2visualvec", "images", _GRIDS, r"\(7, 7, 8\)"),
        ("zero-shot", "images", _GRIDS, "one vector per row"),
        ("scan relational", "images", _VECTORS, "grid"),
        ("vse scan relational", "captions", inputs_of_parts((8,), COUNTS).captions, "word by word"),
        (
            "vse scan relational",
            "captions",
            inputs_of_parts((8,), COUNTS, SEQUENCE).captions,
            "word by word",
        ),
        (
            "cca ridge two-branch zero-shot",
            "captions",
            inputs_of_parts((8,), SEQUENCE).captions,
            "token ids are not a vector",
        ),
    ],
)
def test_features_of_another_shape_are_refused(
    names: str, side: str, spec: FeatureSpec, message: str
) -> None:
    for name in names.split():
        case = KINDS[name]
        with pytest.raises(HeadError, match=message):
            make_head(name, case.settings, replace(case.inputs, **{side: spec}))
