"""The Fisher encoder against Fisher vectors of one caption at a time, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.store.hashing import canonical_json, recipe_hash, sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.encoders import fisher_vector as fisher_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.fisher_vector import FisherVector
from pipeline.text.fisher.codebook import Codebook, fit_codebook, load_codebook
from pipeline.text.fisher.gradients import word_gradients
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import WordVectors, load_vectors, save_vectors

DIM, COMPONENTS = 5, 3
TOKENIZER = TOKENIZERS["treebank"]
NAMES = tuple(f"word{row}" for row in range(200))


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    rng = np.random.default_rng(0)
    matrix = rng.laplace(size=(200, DIM)) @ rng.normal(size=(DIM, DIM)) + 0.5
    return WordVectors("toy", NAMES, matrix.astype(np.float32), "ab" * 32)


@pytest.fixture(scope="module")
def gmm(vectors: WordVectors) -> Codebook:
    return fit_codebook(vectors, "gmm", COMPONENTS, seed=0)


@pytest.fixture(scope="module")
def hglmm(vectors: WordVectors) -> Codebook:
    return fit_codebook(vectors, "hglmm", COMPONENTS, seed=0)


@pytest.fixture
def both(gmm: Codebook, hglmm: Codebook, vectors: WordVectors) -> FisherVector:
    return FisherVector((gmm, hglmm), vectors, TOKENIZER)


def captions(number: int) -> list[str]:
    rng = np.random.default_rng(2)
    some = np.array([*NAMES[:30], "unheard", "!"])
    return [" ".join(rng.choice(some, size=rng.integers(0, 9))) for _ in range(number)]


def one(codebook: Codebook, vectors: WordVectors, text: str) -> npt.NDArray[np.float64]:
    """A caption's normalised Fisher vector, from its own word vectors and in float64."""
    rows = [NAMES.index(token) for token in TOKENIZER.tokenize(text) if token in NAMES]
    words = codebook.transform(vectors.matrix[rows])
    gradients = word_gradients(codebook.mixture, words)
    lengths = np.array([len(rows)])
    plain = gradients.fisher_vectors(np.arange(len(rows)), lengths)[0].astype(np.float64)
    root = np.sign(plain) * np.sqrt(np.abs(plain))
    return root / max(float(np.linalg.norm(root)), 1e-30)


@pytest.mark.parametrize("number", [0, 1, 5, 64])
@pytest.mark.parametrize("numbers_at_once", [1, 7 * 4 * COMPONENTS * DIM, 1 << 20])
def test_equals_fisher_vectors_of_one_caption_at_a_time(
    both: FisherVector, number: int, numbers_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fisher_encoder, "_NUMBERS_AT_ONCE", numbers_at_once)
    texts = captions(number)
    rows = both.encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (number, both.dim) == (number, 4 * COMPONENTS * DIM)
    for row, text in zip(rows, texts, strict=True):
        parts = [one(codebook, both.vectors, text) for codebook in both.codebooks]
        np.testing.assert_allclose(row, np.concatenate(parts), rtol=1e-4, atol=1e-6)


def test_each_codebook_has_norm_one_and_its_own_columns(
    both: FisherVector, gmm: Codebook, hglmm: Codebook, vectors: WordVectors
) -> None:
    texts = ["word1 word2", "word3 unheard", "unheard", ""]
    rows = both.encode(texts)
    half = both.dim // 2
    assert np.array_equal(rows[:, :half], FisherVector((gmm,), vectors, TOKENIZER).encode(texts))
    assert np.array_equal(rows[:, half:], FisherVector((hglmm,), vectors, TOKENIZER).encode(texts))
    for part in (rows[:, :half], rows[:, half:]):
        norms = np.linalg.norm(part.astype(np.float64), axis=1)
        np.testing.assert_allclose(norms, [1, 1, 0, 0], atol=1e-6)
    report = both.reports(texts)[both.name]
    assert report.unknown_captions == (2, 3)
    assert report.oov_words == (("unheard", 2),)
    assert np.array_equal(rows[1], both.encode(["word3"])[0])


def test_name_and_recipe_tell_encoders_apart(
    both: FisherVector, gmm: Codebook, hglmm: Codebook, vectors: WordVectors
) -> None:
    other_policy = replace(TOKENIZER, name="cased", lower_case=False)
    encoders: list[CaptionEncoder] = [
        both,
        FisherVector((hglmm, gmm), vectors, TOKENIZER),
        FisherVector((hglmm,), vectors, TOKENIZER),
        FisherVector((gmm,), vectors, TOKENIZER),
        FisherVector((gmm, hglmm), vectors, other_policy),
        FisherVector((fit_codebook(vectors, "hglmm", COMPONENTS, seed=1),), vectors, TOKENIZER),
    ]
    hashes = {recipe_hash(encoder.recipe(), encoder.weights[1]) for encoder in encoders}
    assert len(hashes) == len(encoders)
    assert both.name == "fv-gmm-hglmm-toy"
    made_from = {"vectors": vectors.sha256, "codebooks": [gmm.sha256, hglmm.sha256]}
    assert both.weights == ("toy, gmm+hglmm", sha256_of_json(made_from))
    assert canonical_json(both.recipe())
    fitted = {"vectors": "toy", "source_sha256": "ab" * 32, "sample": 200, "seed": 0}
    ica = {"ica_converged": True, "ica_iterations": both.codebooks[0].metadata.ica_iterations}
    assert both.recipe() == {
        "name": both.name,
        "encoder": "fisher vector",
        "tokens": TOKENIZER.to_json(),
        "vectors": "toy",
        "codebooks": [
            fitted | ica | {"kind": "gmm", "em_converged": True, "components": 3},
            fitted | ica | {"kind": "hglmm", "em_converged": None, "components": 3},
        ],
        "normalisation": "signed square root, then norm 1, for each codebook",
        "oov": "ignored, also in the number of words; zero vector if no token is known",
        "dim": 60,
    }
    few = replace(vectors, words=NAMES[:7], matrix=vectors.matrix[:7])
    restricted = FisherVector((gmm, hglmm), few, TOKENIZER)
    assert (restricted.recipe(), restricted.weights) == (both.recipe(), both.weights)
    assert restricted.memory == 7 * 4 * both.dim


def test_the_table_of_words_is_within_what_is_told(both: FisherVector) -> None:
    held = sum(gradients.gradients.nbytes for gradients in both._gradients)
    assert 0 < held <= both.memory


def test_other_vectors_and_no_codebook_are_refused(
    both: FisherVector, vectors: WordVectors
) -> None:
    other = replace(vectors, name="other", sha256="cd" * 32)
    with pytest.raises(EncoderError, match=f"gmm .*'toy' .*{'ab' * 32}.*'other' .*{'cd' * 32}"):
        FisherVector(both.codebooks, other, TOKENIZER)
    with pytest.raises(
        EncoderError, match=r"^a Fisher vector needs a codebook, found none; fit one$"
    ):
        FisherVector((), vectors, TOKENIZER)


def test_a_codebook_of_the_full_source_goes_with_a_stored_subset(tmp_path: Path) -> None:
    full = load_vectors("glove-6b-50d")
    some = load_vectors("glove-6b-50d", set(full.words[:300]))
    stored = save_vectors(tmp_path / "some.safetensors", some)
    again = save_vectors(tmp_path / "again.safetensors", stored)
    fit_codebook(full, "hglmm", 4, seed=0, ica=False, sample=2000).save(tmp_path / "c.safetensors")
    texts = ["the man is in the school", "a city by", "zqzq"]
    encoders = [
        FisherVector((load_codebook(tmp_path / "c.safetensors", words),), words, TOKENIZER)
        for words in (some, stored, again)
    ]
    rows = [encoder.encode(texts) for encoder in encoders]
    assert rows[0].any(axis=1).tolist() == [True, True, False]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
    # Stored numbers may be changed by hand, so their own file is what the weights name.
    assert encoders[0].weights[1] != encoders[1].weights[1]
    assert encoders[1].recipe()["vectors"] == "some"
    assert encoders[1].recipe()["codebooks"][0]["vectors"] == "glove-6b-50d"
    other = replace(some, name="other", sha256="cd" * 32)
    with pytest.raises(EncoderError, match=r"'glove-6b-50d' .* not on 'o' "):
        load_codebook(tmp_path / "c.safetensors", save_vectors(tmp_path / "o.safetensors", other))
