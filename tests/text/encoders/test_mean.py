"""The mean encoder against a plain loop, and the account of unknown words."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.text.encoders import mean as means
from pipeline.text.encoders.mean import AVERAGINGS, Mean
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import WordVectors, load_vectors

WORDS = tuple("abcdefgh")


@pytest.fixture
def encoder() -> Mean:
    matrix = np.random.default_rng(1).standard_normal((len(WORDS), 7)).astype(np.float32)
    matrix[4] = 0
    return Mean(WordVectors("toy", WORDS, matrix, "0" * 64))


def naive(encoder: Mean, caption: str) -> npt.NDArray[np.float32]:
    total, known, with_length, tokens = np.zeros(encoder.dim), 0, 0, 0
    for token in encoder.tokenizer.tokenize(caption):
        tokens += 1
        if token in WORDS:
            vector = encoder.vectors.matrix[WORDS.index(token)].astype(np.float64)
            norm = np.sqrt((vector * vector).sum())
            if encoder.averaging == "unit" and norm > 0:
                vector = vector / norm
            total += vector
            known += 1
            with_length += int(norm > 0)
    count = {"known": known, "all": tokens, "unit": with_length}[encoder.averaging]
    return (total / max(count, 1)).astype(np.float32)


def captions(number: int) -> list[str]:
    rng = np.random.default_rng(2)
    some = np.array([*"abcdefgh", "unheard", "zz", "!"])
    return [" ".join(rng.choice(some, size=rng.integers(0, 9))) for _ in range(number)]


@pytest.mark.parametrize("averaging", AVERAGINGS)
@pytest.mark.parametrize("number", [0, 1, 5, 64])
@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_equals_a_plain_loop_whatever_the_chunk(
    encoder: Mean, averaging: str, number: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "_CHUNK", chunk)
    monkeypatch.setattr(means, "_WORDS_AT_ONCE", chunk)
    encoder = Mean(encoder.vectors, averaging=averaging)
    texts = captions(number)
    rows = encoder.encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (number, 7)
    assert np.array_equal(rows, np.array([naive(encoder, t) for t in texts]).reshape(-1, 7))


def test_unknown_words_do_not_count_and_repeats_do(encoder: Mean) -> None:
    a, b = encoder.vectors.matrix[:2].astype(np.float64)
    rows = encoder.encode(["a unheard, A b", "unheard", "a", ""])
    assert np.array_equal(rows[0], ((a + a + b) / 3).astype(np.float32))
    assert not rows[1].any()
    assert np.array_equal(rows[2], a.astype(np.float32))
    assert not rows[3].any()


def test_unit_is_fasttext_s_own_sentence_vector(tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext", reason="the package fasttext is not installed")
    (tmp_path / "corpus.txt").write_text("a dog runs\ntwo dogs run on the grass\n" * 5)
    model = fasttext.train_unsupervised(
        str(tmp_path / "corpus.txt"), dim=10, bucket=2000, minCount=1, thread=1, verbose=0,
        minn=3, maxn=4,
    )  # fmt: skip
    model.save_model(str(tmp_path / "tiny.bin"))
    # "x" has no n-gram, so its vector is zero; "dogging" is out of the dictionary and has some.
    texts = ["a dog runs", "the dogs the dogs dogging x", "x", "zebra", ""]
    vectors = load_vectors(str(tmp_path / "tiny.bin"), {w for text in texts for w in text.split()})
    assert "dogging" in vectors.words
    rows = Mean(vectors, TOKENIZERS["whitespace"], "unit").encode(texts)
    expected = np.array([model.get_sentence_vector(text) for text in texts])
    assert not expected[2].any()
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-7)


def test_unit_does_not_know_words_of_norm_0(encoder: Mean) -> None:
    unit = Mean(encoder.vectors, averaging="unit")
    rows = unit.encode(["e", "a e"])
    assert not rows[0].any()
    assert np.isclose(np.linalg.norm(rows[1]), 1)
    assert unit.reports(["e", "a e"])[unit.name].unknown_captions == (0,)
    assert encoder.reports(["e", "a e"])[encoder.name].unknown_captions == ()


def test_names_tell_means_apart(encoder: Mean) -> None:
    w2vv = TOKENIZERS["w2vv-filterstop"]
    made = [Mean(encoder.vectors, w2vv), Mean(encoder.vectors, w2vv, "unit")]
    assert encoder.name == "mean-toy"
    assert [mean.name for mean in made] == [
        "mean-w2vv-filterstop-toy",
        "mean-unit-w2vv-filterstop-toy",
    ]


def test_no_known_word_at_all() -> None:
    nothing = Mean(WordVectors("none", (), np.empty((0, 3), np.float32), "0" * 64))
    assert nothing.encode(["a b", ""]).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_report_counts_what_is_unknown(encoder: Mean) -> None:
    report = encoder.reports(["a zz b", "zz yy xx", "", "a a yy zz"])[encoder.name]
    assert (report.captions, report.tokens, report.words) == (4, 10, 5)
    assert report.oov_tokens == 6
    assert report.oov_words == (("zz", 3), ("yy", 2), ("xx", 1))
    assert report.unknown_captions == (1, 2)
    assert report.text() == (
        "4 captions, 10 tokens, 5 distinct words; 6 tokens (60.00 %) of 3 words are out of "
        "vocabulary, most often zz (3), yy (2), xx (1). 2 captions have no known word and get a "
        "zero vector (first positions: 1, 2)."
    )
