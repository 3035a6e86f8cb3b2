"""Encoders by name: planned, fitted to training captions alone, and read again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.store.errors import UnknownName
from pipeline.store.files import write_json
from pipeline.text import EncoderError
from pipeline.text.encoder_plans import ENCODERS, EncoderPlan, plan_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitted import ENCODER_FILE, FORMAT, FORMAT_VERSION, load_encoder, load_plan
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.lexicon import Lexicon
from pipeline.text.vectors import WordVectors, load_vectors, save_vectors
from tests.project import Recorder

SUBJECTS = ("a man", "two dogs", "the little girl", "some children", "A Woman in red")
ACTIONS = ("running on", "sitting near", "jumping over", "looks at", "plays with")
PLACES = ("the green grass.", "a wooden bench", "the ocean", "snow!", "a dirt road , far away")
CAPTIONS = [f"{s} {a} {p}" for s in SUBJECTS for a in ACTIONS for p in PLACES]
OTHERS = ["a zebra dances on the moon", "", "xqzzy", "the the the man's dog-like wolf"]
SMALL = {"sample": 400, "components": 3}
NAMES = [name for name in ENCODERS if name != "tags-spacy"]  # it differs from tags in its tagger


def plan_of(name: str, **options: Any) -> EncoderPlan:
    small = SMALL if "fv-" in name else {}
    return plan_encoder(name, **{**small, **options})


def fit(
    plan: EncoderPlan, folder: Path, training: list[str] = CAPTIONS, codebooks: Path | None = None
) -> CaptionEncoder:
    fitting = Fitting(training, "made", "train", codebooks)
    return fit_encoder(plan, folder, fitting, [*training, *OTHERS])


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in NAMES if name not in ("fv-lmm", "fv-gmm", "fv-hglmm")),
        ("bow+mean+token-ids", {"vocabulary": "min-2"}),
        ("fv-hglmm", {"pca": 5, "codebook_words": "source", "seed": 3}),
    ],
)
def test_a_fitted_encoder_is_read_again_bit_for_bit(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    plan = plan_of(name, **options)
    assert EncoderPlan.from_json(plan.to_json()) == plan
    fitted = fit(plan, tmp_path / "one")
    texts = [*CAPTIONS[::7], *OTHERS]
    rows = fitted.encode(texts)
    assert rows.shape == (len(texts), fitted.dim)
    assert rows.dtype == np.float32
    # Other texts are looked up now, so other words have vectors in memory.
    read = load_encoder(tmp_path / "one", texts)
    np.testing.assert_array_equal(read.encode(texts), rows)
    np.testing.assert_array_equal(read.encode(texts[3:4]), rows[3:4])
    # Without texts, the vectors of words are read when captions have them.
    later = load_encoder(str(tmp_path / "one"))
    np.testing.assert_array_equal(later.encode(texts[:2]), rows[:2])
    np.testing.assert_array_equal(later.encode(texts), rows)
    assert later.encode([]).shape == (0, fitted.dim)
    assert later.reports(texts) == read.reports(texts)
    for again in (read, later):
        assert (again.name, again.dim) == (fitted.name, fitted.dim)
        assert again.recipe() == fitted.recipe()
        assert again.weights == fitted.weights
    fit(plan, tmp_path / "two")
    assert files(tmp_path / "two") == files(tmp_path / "one")
    before = files(tmp_path / "one")
    fit(plan, tmp_path / "one")
    assert files(tmp_path / "one") == before


def test_a_folder_is_not_used_for_another_plan_or_other_captions(tmp_path: Path) -> None:
    fit(plan_of("tfidf"), tmp_path / "f")
    with pytest.raises(EncoderError, match=r"differs in parts .*top-3"):
        fit(plan_of("tfidf", vocabulary="top-3"), tmp_path / "f")
    with pytest.raises(EncoderError, match="differs in captions, captions_sha256"):
        fit(plan_of("tfidf"), tmp_path / "f", CAPTIONS[1:])
    # Means of word vectors are fitted to no caption.
    fit(plan_of("mean"), tmp_path / "m")
    fit(plan_of("mean"), tmp_path / "m", CAPTIONS[1:])


def test_codebooks_are_shared(tmp_path: Path) -> None:
    monitor = Recorder()
    plan, shared = plan_of("fv-gmm-hglmm"), tmp_path / "books"
    rows = fit(plan, tmp_path / "one", codebooks=shared).encode(CAPTIONS)
    assert sorted(p.name for p in shared.iterdir()) == [
        "gmm-3-glove-6b-50d.safetensors",
        "hglmm-3-glove-6b-50d.safetensors",
    ]
    fitting = Fitting(CAPTIONS[:2], "other", "train", shared, monitor=monitor)
    other = fit_encoder(plan, tmp_path / "two", fitting, CAPTIONS)
    assert monitor.lines
    assert all(line.startswith("using the ") for line in monitor.lines)
    np.testing.assert_array_equal(other.encode(CAPTIONS), rows)


def test_a_codebook_serves_stored_vectors_of_the_same_source_only(tmp_path: Path) -> None:
    words = {word for caption in CAPTIONS for word in caption.lower().split()}
    stored = save_vectors(tmp_path / "own.safetensors", load_vectors("glove-6b-50d", words))
    fit(plan_of("fv-gmm"), tmp_path / "one", codebooks=tmp_path / "books")
    (tmp_path / "books/gmm-3-glove-6b-50d.safetensors").rename(
        tmp_path / f"books/gmm-3-{stored.name}.safetensors"
    )
    plan = plan_of("fv-gmm", vectors=str(tmp_path / "own.safetensors"))
    assert plan.codebooks is not None
    assert plan.codebooks.words == "training"
    fit(plan, tmp_path / "two", codebooks=tmp_path / "books")
    doubled = type(stored)("own", stored.words, stored.matrix * 2, "0" * 64, "0" * 64)
    save_vectors(tmp_path / "own.safetensors", doubled)
    with pytest.raises(EncoderError, match="was fitted on the word vectors"):
        fit(plan, tmp_path / "three", codebooks=tmp_path / "books")


def test_words_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(plan_of("mean"), tmp_path / "m")
    asked: list[set[str]] = []
    read = Lexicon.vectors_of

    def counted(lexicon: Lexicon, words: set[str]) -> WordVectors:
        asked.append(set(words))
        return read(lexicon, words)

    monkeypatch.setattr(Lexicon, "vectors_of", counted)
    encoder = load_encoder(tmp_path / "m")
    for text in ("a dog", "a dog", "dog a", "two dogs", "dog"):
        encoder.encode([text])
    assert asked == [set(), {"a", "dog"}, {"a", "dog", "two", "dogs"}]


def test_what_cannot_be_fitted_is_refused_before_work(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="1 training caption found"):
        fit(plan_of("fv-hglmm", pca=10), tmp_path / "f", CAPTIONS[:1])
    assert not (tmp_path / "f").exists()
    with pytest.raises(EncoderError, match="no word is left"):
        fit(plan_of("bow"), tmp_path / "g", ["the", "!"])
    with pytest.raises(EncoderError, match="has no fitted encoder"):
        load_encoder(tmp_path / "nothing", CAPTIONS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/encoder.json").write_text('{"format": "other"}')
    with pytest.raises(EncoderError, match=r"reads 'pipeline-encoder' version 1"):
        load_encoder(tmp_path / "other", CAPTIONS)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("maen", {}, "did you mean mean"),
        ("mean+", {}, "no encoder is called ''"),
        ("sentence-transformers:a/b", {}, "did you mean sentence-transformer:a/b"),
        ("sentence-transformer:", {}, "did you mean sentence-transformer:<model>"),
        ("sentence-transformer:x", {"tokenizer": "klein"}, "has no option tokenizer"),
        ("bow", {"vectors": "x.txt"}, "has no option vectors"),
        ("mean", {"components": 3, "max_length": 4}, "has no option components or max length"),
        ("bow", {"vocabulary": "min-0"}, "vocabulary rule 'min-0' is unknown"),
        ("bow", {"tokenizer": "none"}, "tokenizer 'none' is unknown"),
        ("bow+token-ids", {"pca": 3}, "principal components are meaningless"),
    ],
)
def test_wrong_names_and_options_are_refused(
    name: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises((EncoderError, UnknownName), match=expected):
        plan_encoder(name, **options)


def test_words_of_a_sentence_transformer_are_those_of_the_training_captions() -> None:
    made = plan_encoder("fv-gmm+sentence-transformer:m", vectors="sentence-transformer:m")
    assert made.codebooks is not None
    assert made.codebooks.words == "training"
    assert made.specs[1].model == "m"
    assert EncoderPlan.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "["), ("policy", None), ("policy", ["treebank"]), ("kind", "bow"),
        ("mixtures", ["../../hglmm"]), ("mixtures", []), ("mixtures", "hglmm"), ("layout", "vsepp"),
        ("vocabulary", "min-1"), ("encoder", "fv"), ("encoder", 3), ("max_length", -1),
        ("max_length", "9"), ("meaning", "known"),
    ],
)  # fmt: skip
def test_a_plan_that_no_encoder_could_have_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    described = {"format": FORMAT, "format_version": FORMAT_VERSION}
    plan = plan_of("fv-hglmm").to_json()
    plan["parts"][0][field] = value
    write_json(tmp_path / ENCODER_FILE, {**described, "plan": plan})
    with pytest.raises(EncoderError, match=f"{ENCODER_FILE}.*fit it again"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("field", ["vectors", "codebooks"])
def test_a_plan_without_what_its_encoder_is_made_from_is_refused(field: str) -> None:
    with pytest.raises(EncoderError, match=f"'fv-hglmm' needs `{field}`"):
        EncoderPlan.from_json({**plan_of("fv-hglmm").to_json(), field: None})


@pytest.mark.parametrize("captions", [2, 20])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in NAMES if "fv-" not in name),
        ("fv-gmm-hglmm", {"codebook_words": "training", "components": 30}),
        ("fv-lmm", {"codebook_words": "training", "components": 30, "pca": 1000}),
        *((name, {"pca": 1000}) for name in ("bow", "mean", "tfidf+mean")),
        ("bow", {"vocabulary": "min-1000"}),
        ("bow+mean-w2vv+token-ids-w2vv", {}),
    ],
)
def test_every_encoder_is_fitted_to_a_few_captions(
    name: str, options: dict[str, Any], captions: int, tmp_path: Path
) -> None:
    """What shrinks is logged; the plan stays the requested one, so that it is found again."""
    monitor = Recorder()
    plan = plan_encoder(name, **options)
    few = [CAPTIONS[31 * k % len(CAPTIONS)] for k in range(captions)]
    encoder = fit_encoder(plan, tmp_path, Fitting(few, "made", "train", monitor=monitor), few)
    rows = encoder.encode(OTHERS)
    assert rows.shape == (len(OTHERS), encoder.dim)
    assert np.isfinite(rows).all()
    assert encoder.encode(few).any()
    assert load_plan(tmp_path).to_json()["pca"] == options.get("pca")
    if "pca" in options:
        assert encoder.dim < captions
        (line,) = (line for line in monitor.lines if line.startswith("PCA: "))
        assert line.startswith(f"PCA: {encoder.dim} component")
        assert f", not 1000, from {captions} captions with rows of " in line
    if options.get("vocabulary") == "min-1000":
        (line,) = (line for line in monitor.lines if line.startswith("vocabulary "))
        assert f"all {encoder.dim} words, since none of them occurs 1000 times" in line
    np.testing.assert_array_equal(load_encoder(tmp_path, few).encode(few), encoder.encode(few))
