"""Presets: every published system resolves at every size, and is what its paper says."""

import importlib
import json
import re
import runpy
import sys
from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
import yaml

from pipeline.clips.recipes import recipe_of_clips
from pipeline.heads import HeadError
from pipeline.heads.base import settings_from
from pipeline.heads.experiments import TRAINED_VECTORS, Size, resolve_experiment
from pipeline.heads.head_types import CaptionFeatures, head_kind, make_head
from pipeline.heads.inputs.feature_spec import FeatureSpec, HeadInputs
from pipeline.heads.presets import PRESETS
from pipeline.heads.training.trainer import NetworkHead
from pipeline.images.recipes import resolve_recipe
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.ensemble import ENSEMBLES, members_in, members_of
from pipeline.text.encoders.registry import encoder_options
from tests.forks import exit_of
from tests.project import PROJECT

PARAMS: dict[str, Any] = yaml.safe_load((PROJECT / "params.yaml").read_text())
SIZES: tuple[Size, ...] = get_args(Size)
OF_WORDS = FeatureSpec(
    (9,), {"name": "w", "encoder": "sequence", "num_ids": 30, "dim": 9, "layout": {}}, "1", "none"
)
OF_COUNTS = FeatureSpec((30,), {"name": "c", "encoder": "bow", "dim": 30}, "2", "none")


def inputs_of(images: str, encoder: str) -> HeadInputs:
    """Return specs of small features like those of a recipe and an encoder."""
    if images.startswith("open-clip:"):
        spec = FeatureSpec((8,), {"backbone": images, "model": encoder}, "0", "w", "5ha")
        return HeadInputs(spec, spec)
    shape = (3, 3, 8) if images.endswith("-grid") else (8,)
    words = encoder.startswith("token-ids")
    return HeadInputs(
        FeatureSpec(shape, {"name": images}, "0", "none"), OF_WORDS if words else OF_COUNTS
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_what_there_is(name: str, size: Size) -> None:
    made = resolve_experiment(name, size=size)
    assert (made.name, made.preset, made.head) == (name, name, PRESETS[name].head)
    recipes = made.images.split("+")
    resolve = recipe_of_clips if PRESETS[name].of_clips else resolve_recipe
    assert [resolve(recipe).name for recipe in recipes] == recipes
    encoder_options(made.captions.encoder, **made.captions.options)
    make_head(made.head, made.settings, inputs_of(made.images, made.captions.encoder))
    assert json.loads(json.dumps(made.settings)) == made.settings
    kind = head_kind(made.head).settings
    settings, defaults = settings_from(kind, made.settings, made.head), kind()
    assert all(getattr(settings, key) != getattr(defaults, key) for key in made.settings)
    if size == "paper":
        assert settings == PRESETS[name].settings


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_shows_its_values_at_every_size(name: str) -> None:
    """What an experiment is made of is what its entry says, whatever the size."""
    preset = PRESETS[name]
    small = preset.small.settings
    changes: tuple[dict[str, Any], ...] = ({}, {**small}, {**small, **preset.tiny})
    for size, changed in zip(SIZES, changes, strict=True):
        made = resolve_experiment(name, size=size)
        settings = settings_from(head_kind(made.head).settings, made.settings, made.head)
        assert settings == replace(preset.settings, **changed)


def test_an_edit_of_a_preset_holds_at_the_sizes_that_leave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vsepp = PRESETS["vsepp"]
    edited = replace(vsepp, settings=replace(vsepp.settings, margin=0.3, epochs=40))
    monkeypatch.setitem(PRESETS, "vsepp", edited)
    made = [resolve_experiment("vsepp", size=size).settings for size in SIZES]
    assert [settings["margin"] for settings in made] == [0.3, 0.3, 0.3]
    assert [settings["epochs"] for settings in made] == [40, 8, 12]


def test_word_vectors_of_the_small_size_can_be_had() -> None:
    vectors = {e.captions.options.get("vectors") for e in map(resolve_experiment, PRESETS)}
    assert vectors <= {None, *TRAINED_VECTORS}, "others are not in any package"


@pytest.mark.parametrize("size", SIZES)
def test_a_tuned_head_has_the_modules_of_the_one_that_it_starts_from(size: Size) -> None:
    for name, preset in PRESETS.items():
        if preset.finetuning is None:
            continue
        tuned = resolve_experiment(name, size=size)
        assert tuned.finetuning is not None
        start = resolve_experiment(tuned.finetuning.start, size=size)
        shapes = [
            {key: tensor.shape for key, tensor in head.task.build(None).state_dict().items()}
            for head in (
                make_head(e.head, e.settings, inputs_of(e.images, e.captions.encoder))
                for e in (tuned, start)
            )
            if isinstance(head, NetworkHead)
        ]
        assert len(shapes) == 2
        assert shapes[0] == shapes[1]
        assert (tuned.images, tuned.captions) == (start.images, start.captions)


def test_caption_features_of_one_name_are_one() -> None:
    """Their folder goes by the name, whatever experiment and size asks for them."""
    made = [resolve_experiment(name, size=size).captions for size in SIZES for name in PRESETS]
    assert len({c.name for c in made}) == len({json.dumps(asdict(c)) for c in made})


def test_the_default_experiments_are_the_presets_at_the_small_size() -> None:
    for name, entry in PARAMS["experiments"].items():
        made = resolve_experiment(name, size=PARAMS["size"])
        assert (made.images, made.captions.name) == (entry["images"], entry["captions"])
        listed = dict(PARAMS["caption_features"][entry["captions"]])
        assert made.captions.encoder == listed.pop("encoder")
        # A few hundred images need fewer words for a codebook.
        assert dict(made.captions.options, sample=listed.get("sample")) == {"sample": None} | listed
        assert made.images in PARAMS["image_features"]
    assert PARAMS["word_vectors"] == TRAINED_VECTORS


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "vsepp",
            {
                "margin": 0.2, "learning_rate": 0.0002, "lr_decay_every": 15, "dim": 1024,
                "word_dim": 300, "batch_size": 128, "epochs": 30, "loss": "max_of_hinges",
                "mean_hinge_epochs": 0,
            },
        ),
        ("wang2016-nonlinear-bidirectional-structure-mean", {"hidden": 1024, "dim": 256}),
        ("qian2018-gru-glove-printed-rate", {"image_scaling": "unit", "learning_rate": 0.05}),
        ("yan2019-transformer-pooling", {"learning_rate": 2e-5, "lr_milestones": (9, 15),
                                         "epochs": 20}),
        (
            "kiros2014-lstm",
            {
                "cell": "peephole_lstm", "dim": 300, "learning_rate": 1.0, "margin": 0.2,
                "batch_size": 40, "train_words": False,
            },
        ),
        ("dong2018-w2vv-word2vec", {"layers": 3}),
        ("dong2018-w2vv-word2vec-4-layers", {"layers": 4}),
    ],
)  # fmt: skip
def test_presets_are_what_their_papers_say(name: str, values: dict[str, Any]) -> None:
    settings = PRESETS[name].settings
    assert {key: getattr(settings, key) for key in values} == values


def test_the_systems_of_wang_are_all_combinations_of_weights() -> None:
    six = [name for name in PRESETS if name.startswith(("wang2016-linear", "wang2016-nonlinear"))]
    assert {
        (s.branches, s.text_to_image_weight, s.structure_weight)
        for s in (PRESETS[name].settings for name in six)
    } == {
        (branches, *pair)
        for branches in ("linear", "nonlinear")
        for pair in ((0.0, 0.0), (2.0, 0.0), (2.0, 0.2))
    } | {("nonlinear", 1.0, 0.0)}


@pytest.mark.parametrize("size", SIZES[:2])
def test_compared_systems_differ_in_nothing_else(size: Size) -> None:
    """A claim of a paper is about what its two systems do not share."""

    def made(name: str) -> dict[str, Any]:
        found = resolve_experiment(name, size=size)
        settings = asdict(settings_from(head_kind(found.head).settings, found.settings, found.head))
        return {"images": found.images, "captions": found.captions.name,
                "vectors": found.word_vectors, **settings}  # fmt: skip

    of_all = resolve_experiment("dong2018-w2vv-multiscale", size=size)
    mean = resolve_experiment("dong2018-w2vv-word2vec", size=size).captions
    gru = resolve_experiment("dong2018-w2vv-gru", size=size)
    assert of_all.captions.options["vectors"] == mean.options["vectors"]
    assert of_all.word_vectors == gru.word_vectors
    for one, other, apart in (
        ("vsepp", "vse0", {"loss", "mean_hinge_epochs"}),
        ("kiros2014-lstm", "kiros2014-devise", {"cell", "captions", "dim"}),
        ("qian2018-gru", "qian2018-gru-glove", {"vectors"}),
        ("qian2018-gru-glove", "qian2018-lstm-glove", {"cell"}),
        ("qian2018-gru-glove", "qian2018-gru-glove-fixed", {"train_words"}),
        ("qian2018-gru-glove", "qian2018-gru-glove-cosine", {"similarity"}),
        ("qian2018-gru-glove", "qian2018-gru-glove-bidirectional", {"bidirectional"}),
        ("qian2018-gru-glove", "qian2018-gru-glove-stacked", {"layers"}),
        ("vendrov2016-order", "vendrov2016-symmetric", {"similarity", "absolute", "margin"}),
        ("yan2019-transformer-basic", "yan2019-transformer-basic-max", {"pooling"}),
        ("wang2016-cca", "wang2016-cca-gmm-hglmm", {"captions"}),
        ("dong2018-w2vv-word2vec", "dong2018-w2vv-word2vec-4-layers", {"layers"}),
    ):
        a, b = made(one), made(other)
        assert {key for key in a if a[key] != b[key]} <= apart, (one, other)


def test_what_differs_from_the_papers_is_written_down() -> None:
    program = runpy.run_path(str(PROJECT / "docs/tools/deviations.py"))
    written = (PROJECT / "docs/lab/deviations.md").read_text(encoding="utf-8")
    assert written == program["page"](), "run `python docs/tools/deviations.py`"
    for name, preset in PRESETS.items():
        assert f"\n## {name}\n" in written or re.search(rf"^- .*`{name}`.*: ", written, re.M)
        assert preset.source[1:].rstrip(".") in written
        assert all(clause in written for clause in preset.leaves_open.split("; "))


def test_an_experiment_changes_its_preset() -> None:
    made = resolve_experiment(
        "mine",
        preset="vsepp",
        images="resnet152-pool",
        captions=CaptionFeatures("other", "token-ids"),
        settings={"epochs": 30, "margin": 0.1, "dim": 1024},
        word_vectors="glove-6b-50d",
    )
    plain = resolve_experiment("vsepp")
    # The default margin and dim, so neither differs any more.
    changed = {k: v for k, v in plain.settings.items() if k not in ("margin", "dim")}
    assert made.settings == {**changed, "epochs": 30}
    assert (made.images, made.captions.name, made.word_vectors) == (
        "resnet152-pool", "other", "glove-6b-50d"
    )  # fmt: skip
    assert plain.captions.name == "token-ids"


def test_a_head_may_stand_in_place_of_a_preset() -> None:
    captions = CaptionFeatures("mean", "mean")
    made = resolve_experiment("mine", head="ridge", images="alexnet-fc7", captions=captions)
    assert (made.preset, made.settings, made.word_vectors) == (None, {}, None)
    with pytest.raises(HeadError, match="needs `images` and `captions`"):
        resolve_experiment("mine", head="ridge", images="alexnet-fc7")
    with pytest.raises(HeadError, match="remove one"):
        resolve_experiment("mine", head="ridge", preset="vsepp")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(HeadError, match="did you mean vsepp"):
        resolve_experiment("vsep")
    with pytest.raises(EmbeddingsError, match="use the ensemble ours"):
        members_of("our")


def test_ensembles_are_of_presets() -> None:
    for name, members in ENSEMBLES.items():
        assert members.keys() <= PRESETS.keys()
        assert members_of(name) == members
    assert members_of("ours", {"vsepp": 1.0}) == {"vsepp": 1.0}
    two = "efficientnet-lite0-pool+resnet50-caffe-pool"
    assert members_of(f"ours@{two}") == {f"{m}@{two}": w for m, w in ENSEMBLES["ours"].items()}
    own = {"mine": {"vsepp": 2.0}, "mine@b": {"vse0": 1.0}}
    assert members_in(own, "mine@a") == {"vsepp@a": 2.0}
    assert members_in(own, "mine@b") == {"vse0": 1.0}
    assert members_in(own, "vsepp@a") == {}


def test_fitting_one_head_needs_no_module_of_another() -> None:
    """The job and the file of a head come to these: `fit` and `trained_head`."""

    def import_again() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "pipeline"]:
            del sys.modules[name]
        importlib.import_module("pipeline.heads.head_types").head_kind("vse")
        heads = [name for name in sys.modules if name.startswith("pipeline.heads.architectures.")]
        assert heads == ["pipeline.heads.architectures.vse"]

    assert exit_of(import_again) == 0
