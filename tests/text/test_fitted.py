"""Encoders by name, and folders of other encoders, other options and shared codebooks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.store.errors import UnknownName
from pipeline.store.files import write_json
from pipeline.text import EncoderError
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.plan_json import options_of, plan_of
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fisher.codebook import fit_codebook, load_codebook
from pipeline.text.fitted import ENCODER_FILE, FORMAT, FORMAT_VERSION, load_encoder
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.vectors import load_vectors, save_vectors
from tests.project import Recorder
from tests.text.encoders.test_every_encoder import CAPTIONS

FISHER = {"sample": 400, "components": 3}


def fit(
    options: EncoderOptions,
    folder: Path,
    training: list[str] = CAPTIONS,
    codebooks: Path | None = None,
    monitor: Recorder | None = None,
) -> CaptionEncoder:
    fitting = Fitting(training, "made", "train", codebooks, monitor=monitor or Recorder())
    return fit_encoder(options, folder, fitting, CAPTIONS)


def test_a_folder_is_not_used_for_other_options(tmp_path: Path) -> None:
    fit(encoder_options("tfidf"), tmp_path / "f")
    with pytest.raises(EncoderError, match=r"parts\.0\.vocabulary .* expected top-3"):
        fit(encoder_options("tfidf", vocabulary="top-3"), tmp_path / "f")


def test_codebooks_are_shared(tmp_path: Path) -> None:
    monitor, shared = Recorder(), tmp_path / "books"
    options = encoder_options("fv-gmm-hglmm", **FISHER)
    rows = fit(options, tmp_path / "one", codebooks=shared).encode(CAPTIONS)
    assert sorted(p.name for p in shared.iterdir()) == [
        "gmm-3-glove-6b-50d.safetensors",
        "hglmm-3-glove-6b-50d.safetensors",
    ]
    other = fit(options, tmp_path / "two", CAPTIONS[:2], shared, monitor)
    assert [line.startswith("using the ") for line in monitor.lines] == [True, True]
    np.testing.assert_array_equal(other.encode(CAPTIONS), rows)


def test_a_codebook_of_the_same_fit_is_found_again(tmp_path: Path) -> None:
    def codebook(out: str, **options: Any) -> tuple[bytes, bool]:
        monitor = Recorder()
        fitting = Fitting(CAPTIONS, "made", "train", monitor=monitor, work=tmp_path / ".work")
        chosen = encoder_options("fv-gmm", **{**FISHER, **options})
        fit_encoder(chosen, tmp_path / out, fitting, CAPTIONS)
        used = any(line.startswith("using the gmm codebook of ") for line in monitor.lines)
        return (tmp_path / out / "codebook-gmm.safetensors").read_bytes(), used

    fitted, used = codebook("one")
    assert (codebook("two", tokenizer="klein"), used) == ((fitted, True), False)
    other: tuple[dict[str, Any], ...]
    other = {"components": 2}, {"sample": 300}, {"seed": 1}, {"codebook_words": "training"}
    assert not any(codebook(f"other-{k}", **options)[1] for k, options in enumerate(other))
    (kept,) = [p for p in (tmp_path / ".work").iterdir() if p.read_bytes() == fitted]
    kept.unlink()
    assert codebook("three") == (fitted, False)


def test_a_codebook_serves_stored_vectors_of_the_same_source_only(tmp_path: Path) -> None:
    words = {word for caption in CAPTIONS for word in caption.lower().split()}
    own, books = tmp_path / "own.safetensors", tmp_path / "books"
    stored = save_vectors(own, load_vectors("glove-6b-50d", words))
    fit(encoder_options("fv-gmm", **FISHER), tmp_path / "one", codebooks=books)
    (books / "gmm-3-glove-6b-50d.safetensors").rename(books / "gmm-3-own.safetensors")
    options = encoder_options("fv-gmm", **FISHER, vectors=str(own))
    fit(options, tmp_path / "two", codebooks=books)
    save_vectors(own, type(stored)("own", stored.words, stored.matrix * 2, "0" * 64, "0" * 64))
    with pytest.raises(EncoderError, match="was fitted on the word vectors"):
        fit(options, tmp_path / "three", codebooks=books)


def test_a_codebook_of_training_words_has_seen_no_others(tmp_path: Path) -> None:
    options = encoder_options("fv-gmm", **FISHER, codebook_words="training")
    fit(options, tmp_path / "f", CAPTIONS[:20])
    words = load_vectors("glove-6b-50d", options.words_of(CAPTIONS[:20]))
    fitted = load_codebook(tmp_path / "f" / "codebook-gmm.safetensors", words)
    assert fitted.sha256 == fit_codebook(words, "gmm", 3, seed=0, sample=400).sha256


def test_what_cannot_be_fitted_is_refused_before_work(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="1 training caption found"):
        fit(encoder_options("fv-hglmm", pca=10), tmp_path / "f", CAPTIONS[:1])
    with pytest.raises(EncoderError, match="no word is left"):
        fit(encoder_options("bow"), tmp_path / "f", ["the", "!"])
    assert not (tmp_path / "f").exists()
    with pytest.raises(EncoderError, match="has no fitted encoder"):
        load_encoder(tmp_path / "nothing", CAPTIONS)
    (tmp_path / ENCODER_FILE).write_text('{"format": "other"}')
    with pytest.raises(EncoderError, match=r"reads 'pipeline-encoder' version 1"):
        load_encoder(tmp_path, CAPTIONS)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("maen", {}, "did you mean mean"),
        ("mean+", {}, "no encoder is called ''"),
        ("sentence-transformers:a/b", {}, "did you mean sentence-transformer:a/b"),
        ("sentence-transformer:", {}, "did you mean sentence-transformer:<model>"),
        ("sentence-transformer:x", {"tokenizer": "klein"}, "has no option tokenizer"),
        ("bow", {"vectors": "x.txt"}, "has no option vectors"),
        ("bow", {"wordnet": "folder"}, "has no option wordnet"),
        ("token-ids", {"vectors": "x.txt"}, "has no option vectors"),
        ("mean", {"components": 3, "max_length": 4}, "has no option components or max length"),
        ("mean", {"averaging": "all"}, "has no option averaging"),
        ("bow", {"vocabulary": "min-0"}, "vocabulary rule 'min-0' is unknown"),
        ("bow", {"tokenizer": "none"}, "tokenizer 'none' is unknown"),
        ("token-ids", {"max_length": 0}, "max_length is 0, expected 1 or more"),
        ("bow+token-ids", {"pca": 3}, "principal components are meaningless"),
    ],
)
def test_wrong_names_and_options_are_refused(
    name: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises((EncoderError, UnknownName), match=expected):
        encoder_options(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("fv-gmm", {}, {"vectors": "glove-6b-50d", "codebook_words": "source"}),
        ("fv-gmm", {"vectors": "own.safetensors"}, {"codebook_words": "training"}),
        ("fv-gmm", {"vectors": "sentence-transformer:m"}, {"codebook_words": "training"}),
        ("token-ids-yan", {}, {"vectors": "glove-6b-50d", "max_length": 48}),
        ("token-ids", {"layout": "words"}, {"vectors": "glove-6b-50d", "max_length": None}),
        ("token-ids-yan", {"layout": "kiros"}, {"vectors": None}),
        ("tfidf", {"wordnet": "folder"}, {"tokenizer": "lemmas", "wordnet": "folder"}),
        ("open-clip:a.b", {}, {"weights": "pretrained", "model": "a.b"}),
    ],
)
def test_defaults_follow_from_other_options(
    name: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    made = encoder_options(name, **options)
    assert {option: getattr(made, option) for option in expected} == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "["), ("policy", None), ("policy", ["treebank"]), ("kind", "bow"),
        ("mixtures", ["../../hglmm"]), ("mixtures", []), ("mixtures", "hglmm"), ("layout", "vsepp"),
        ("vocabulary", "min-1"), ("encoder", "fv"), ("encoder", 3), ("max_length", -1),
        ("max_length", "9"), ("meaning", "known"), ("kind", 3), ("other", 1),
    ],
)  # fmt: skip
def test_a_plan_that_no_encoder_could_have_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    plan = plan_of(encoder_options("fv-hglmm"))
    plan["parts"][0][field] = value
    described = {"format": FORMAT, "format_version": FORMAT_VERSION}
    write_json(tmp_path / ENCODER_FILE, {**described, "plan": plan})
    with pytest.raises(EncoderError, match=f"{ENCODER_FILE}.*fit it again"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("field", ["vectors", "codebooks"])
def test_a_plan_without_what_its_encoder_is_made_from_is_refused(field: str) -> None:
    with pytest.raises(EncoderError, match=f"'fv-hglmm' needs `{field}`"):
        options_of({**plan_of(encoder_options("fv-hglmm")), field: None})
