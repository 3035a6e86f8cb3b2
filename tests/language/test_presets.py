"""Language models by name: their sizes, and the steps that `pipeline run` makes of them."""

from pathlib import Path

import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.experiments.run import run
from pipeline.heads import HeadError
from pipeline.heads.presets import PRESETS
from pipeline.language import LanguageError
from pipeline.language.model_types import LanguageExperiment, condition_of
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment


def test_presets_have_both_sizes_and_a_space_that_is_there() -> None:
    assert not LANGUAGE_PRESETS.keys() & PRESETS.keys()
    for name, preset in ((name, both.paper) for name, both in LANGUAGE_PRESETS.items()):
        assert preset.name == name
        assert bool(preset.space) == (preset.condition == "sentence")
        assert preset.space in {"", *PRESETS}
        assert bool(preset.images) == (preset.condition == "image")
        assert resolve_language_experiment(name, size="paper").settings == preset.settings
    small = resolve_language_experiment("kiros2014-sc-nlm", settings={"epochs": 3})
    assert small.settings["epochs"] == 3
    assert small.at_most(2).settings["epochs"] == 2
    assert small.at_most(None) is small.at_most(5) is small


def test_a_model_on_other_image_features() -> None:
    soft = resolve_language_experiment("xu2015-soft-attention@resnet50-caffe-grid")
    assert (soft.images, soft.space) == ("resnet50-caffe-grid", "")
    written = resolve_language_experiment("kiros2014-mlbl@resnet50-caffe-pool")
    assert (written.images, written.space) == ("", "kiros2014-lstm@resnet50-caffe-pool")
    assert written.settings == resolve_language_experiment("kiros2014-mlbl").settings
    with pytest.raises(LanguageError, match="kiros2014-lbl is conditioned on no image"):
        resolve_language_experiment("kiros2014-lbl@resnet50-caffe-pool")


def test_wrong_names() -> None:
    with pytest.raises(LanguageError, match="did you mean kiros2014-sc-nlm"):
        resolve_language_experiment("kiros2014-sc-nml")
    with pytest.raises(LanguageError, match="did you mean sc-nlm"):
        condition_of("scnlm")
    with pytest.raises(HeadError, match="has no setting 'depth'"):
        resolve_language_experiment("kiros2014-lbl", settings={"depth": 2})
    with pytest.raises(LanguageError, match="no language model is called"):
        assert LanguageExperiment("x", "gpt").condition


def test_a_run_makes_the_head_and_then_the_language_model(tmp_path: Path) -> None:
    entries = [
        ImageEntry(f"{split}{k}", "x.png", split, ("a dog runs .",))
        for split in ("train", "val", "test")
        for k in range(3)
    ]
    Manifest("made", tmp_path, tuple(entries), "none", "test", {}).write(tmp_path / "made")
    result = run(
        ["kiros2014-sc-nlm", "kiros2014-lstm-decoder"], tmp_path / "made", root=tmp_path,
        seeds=2, dry_run=True,
    )  # fmt: skip
    with pytest.raises(LanguageError, match=r"pass `corpus=.*`, a file with one sentence per line"):
        run("kiros2014-sc-nlm-corpus", tmp_path / "made", root=tmp_path, dry_run=True)
    with pytest.raises(LanguageError, match="no effect; run kiros2014-sc-nlm-corpus"):
        run("kiros2014-sc-nlm", tmp_path / "made", corpus="x.txt", dry_run=True)
    assert {"text token-ids", "text tags", "extract efficientnet-lite0-pool"} < {*result.made}
    assert [step for step in result.made if step.startswith("train")] == [
        "train kiros2014-lstm",
        "train kiros2014-sc-nlm",
        "train kiros2014-lstm-seed1",
        "train kiros2014-sc-nlm-seed1",
        "train kiros2014-lstm-decoder",
        "train kiros2014-lstm-decoder-seed1",
    ]
