"""What every encoder promises, as one suite: a new encoder is one line of `CASES`."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.testing import EncoderCase, EncoderSuite
from pipeline.testing.encoders import CAPTIONS, TEXTS, UNKNOWN
from pipeline.text import EncoderError, FittedFileError, sentence_model
from pipeline.text.encoders import mean
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.plan_json import plan_of
from pipeline.text.encoders.registry import KINDS, encoder_options, encoders, settable_fields
from pipeline.text.fitted import LoadedEncoder, load_encoder
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.vectors import WordVectors
from tests.images.networks.factories import add_tiny_models
from tests.images.networks.tiny_transformers import save_dual
from tests.project import Recorder
from tests.text.test_sentence_model import StandIn

# Another value of each option that a command can set.
OTHERS: dict[str, Any] = {
    "tokenizer": "whitespace", "wordnet": "dict", "vectors": "other.txt", "vocabulary": "top-3",
    "components": 4, "sample": 399, "seed": 9, "codebook_words": "training", "layout": "yan",
    "max_length": 7, "tagger": "spacy", "weights": "random:1", "pca": 2, "pooling": "cls",
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    **{name: {} for name in encoders() if name != "tags-spacy"},  # as tags, but for its tagger
    **{name: {"sample": 400, "components": 3} for name in encoders() if name.startswith("fv-")},
    "bow+mean+token-ids": {"vocabulary": "min-2"},
    "tfidf+fv-lmm": {"sample": 400, "components": 3, "pca": 30, "codebook_words": "training"},
    "open-clip:tiny-vit": {"weights": "random:0"},
    "transformers:small": {},
    "sentence-transformer:small": {},
}


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EncoderCase]:
    name, folder = request.param, tmp_path_factory.mktemp("encoder")
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith("open-clip"):
            pytest.importorskip("open_clip")
            add_tiny_models(folder)
        if name.startswith("transformers"):
            pytest.importorskip("transformers")
            name = f"transformers:{save_dual(folder / 'small', 'clip')}"
        if name.startswith("sentence-transformer"):
            pytest.importorskip("huggingface_hub")
            (folder / "small").mkdir()
            (folder / "small" / "modules.json").write_text('[{"path": ""}]')
            patch.setattr(sentence_model, "_load", lambda *_: StandIn())
            name = f"sentence-transformer:{folder / 'small'}"
        yield EncoderCase.fitted(name, folder / "fitted", **CASES[request.param])


class TestEncoders(EncoderSuite):
    pass


def fit(case: EncoderCase, folder: Path, training: list[str] = CAPTIONS) -> CaptionEncoder:
    return fit_encoder(case.options, folder, Fitting(training, "made", "train"), TEXTS)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_cases_have_every_kind() -> None:
    kinds = {part.kind for name in CASES for part in encoder_options(name).parts}
    assert kinds | {"concatenation", "pca"} == {*KINDS}
    assert {*OTHERS} == {*settable_fields()}


def test_it_is_fitted_to_equal_files_and_then_reused(case: EncoderCase, tmp_path: Path) -> None:
    fit(case, tmp_path / "f")
    made = files(tmp_path / "f")
    assert made == files(case.folder)
    before = {path: path.stat().st_ino for path in (tmp_path / "f").iterdir()}
    fit(case, tmp_path / "f")
    assert {path: path.stat().st_ino for path in (tmp_path / "f").iterdir()} == before


def test_a_part_of_an_interrupted_fit_is_reused(case: EncoderCase, tmp_path: Path) -> None:
    fit(case, tmp_path / "f")
    for path in sorted((tmp_path / "f").iterdir())[1:]:
        path.unlink()
        fit(case, tmp_path / "f")
        assert files(tmp_path / "f") == files(case.folder)


def test_it_reports_on_unknown_words(case: EncoderCase) -> None:
    for report in case.encoder.reports([CAPTIONS[0], *UNKNOWN[:2]]).values():
        assert report.captions == 3
        assert 0 not in report.unknown_captions
        assert report.text().startswith("3 captions, ")
    assert all(report.captions == 0 for report in case.encoder.reports([]).values())


def test_other_training_captions_are_another_encoder(case: EncoderCase) -> None:
    if not case.options.fitted_on_captions:
        fit(case, case.folder, CAPTIONS[1:])
        return
    with pytest.raises(FittedFileError, match=r"captions is \d+, expected \d+; `upd"):
        fit(case, case.folder, CAPTIONS[1:])


def test_every_option_makes_another_encoder(case: EncoderCase) -> None:
    name, parts = case.options.name, case.options.parts
    for option in OTHERS.keys() & {each.name for part in parts for each in fields(part)}:
        if all(getattr(part, option, OTHERS[option]) == OTHERS[option] for part in parts):
            continue
        given = {**CASES.get(name, {}), option: OTHERS[option]}
        of_parts = [
            (p, f.metadata["applies"] or bool) for p in parts for f in fields(p) if f.name == option
        ]
        if any(applies(part) for part, applies in of_parts):
            assert plan_of(encoder_options(name, **given)) != plan_of(case.options), option
        else:
            with pytest.raises(EncoderError, match=f"has no option {option}"):
                encoder_options(name, **given)


@pytest.mark.parametrize("captions", [2, 20])
def test_a_few_captions_are_enough(case: EncoderCase, captions: int, tmp_path: Path) -> None:
    few = [CAPTIONS[31 * k % len(CAPTIONS)] for k in range(captions)]
    options, pca = case.options, plan_of(case.options)["pca"]
    if any(part.kind == "fisher" for part in options.parts):
        options = encoder_options(options.name, components=12, codebook_words="training", pca=pca)
    monitor = Recorder()
    encoder = fit_encoder(options, tmp_path, Fitting(few, "made", "train", monitor=monitor), few)
    rows = encoder.encode([*few, *UNKNOWN])
    assert np.isfinite(rows).all()
    assert rows[:captions].any()
    np.testing.assert_array_equal(load_encoder(tmp_path, few).encode(few), rows[:captions])
    if pca is not None:
        # What shrinks is logged; the plan has the requested number, so that it is found again.
        assert encoder.dim < captions
        (line,) = (line for line in monitor.lines if line.startswith("PCA: "))
        assert line.startswith(f"PCA: {encoder.dim} component")
        assert f", not {pca}, from {captions} captions with rows of " in line


def test_words_are_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    load = mean.load_vectors

    def counted(source: str, words: set[str]) -> WordVectors:
        asked.append({*words})
        return load(source, words)

    monkeypatch.setattr(mean, "load_vectors", counted)
    options = encoder_options("mean")
    fit_encoder(options, tmp_path / "m", Fitting([], "made", "train"), ["a"])
    encoder: LoadedEncoder = load_encoder(tmp_path / "m")
    for text in ("a dog", "a dog", "dog a", "two dogs", "dog"):
        encoder.encode([text])
    assert asked == [{"a"}, set(), {"a", "dog"}, {"a", "dog", "two", "dogs"}]
