"""The mean encoder against a plain loop, and the account of unknown words."""

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.canonical import canonical_json
from pipeline.text import means
from pipeline.text.encoders import CaptionEncoder
from pipeline.text.means import MeanVectors
from pipeline.text.policies import POLICIES
from pipeline.text.vectors import WordVectors

WORDS = tuple("abcdefgh")


@pytest.fixture
def encoder() -> MeanVectors:
    matrix = np.random.default_rng(1).standard_normal((len(WORDS), 7)).astype(np.float32)
    return MeanVectors(WordVectors("toy", WORDS, matrix, "0" * 64))


def naive(encoder: MeanVectors, caption: str) -> npt.NDArray[np.float32]:
    total, count = np.zeros(encoder.dim), 0
    for token in POLICIES["treebank"].tokenize(caption):
        if token in WORDS:
            total += encoder.vectors.matrix[WORDS.index(token)]
            count += 1
    return (total / max(count, 1)).astype(np.float32)


def captions(number: int) -> list[str]:
    rng = np.random.default_rng(2)
    some = np.array([*"abcdefgh", "unheard", "zz", "!"])
    return [" ".join(rng.choice(some, size=rng.integers(0, 9))) for _ in range(number)]


@pytest.mark.parametrize("number", [0, 1, 5, 64])
@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_equals_a_plain_loop_whatever_the_chunk(
    encoder: MeanVectors, number: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(means, "_CHUNK", chunk)
    texts = captions(number)
    rows = encoder.encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (number, 7)
    assert np.array_equal(rows, np.array([naive(encoder, t) for t in texts]).reshape(-1, 7))


def test_a_row_does_not_depend_on_its_company(encoder: MeanVectors) -> None:
    texts = captions(50)
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.array_equal(together, alone)
    assert np.array_equal(together[::-1], encoder.encode(texts[::-1]))


def test_unknown_words_do_not_count_and_repeats_do(encoder: MeanVectors) -> None:
    a, b = encoder.vectors.matrix[:2].astype(np.float64)
    rows = encoder.encode(["a unheard, A b", "unheard", "a", ""])
    assert np.array_equal(rows[0], ((a + a + b) / 3).astype(np.float32))
    assert not rows[1].any()
    assert np.array_equal(rows[2], a.astype(np.float32))
    assert not rows[3].any()


def test_no_known_word_at_all() -> None:
    nothing = MeanVectors(WordVectors("none", (), np.empty((0, 3), np.float32), "0" * 64))
    assert nothing.encode(["a b", ""]).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_report_counts_what_is_unknown(encoder: MeanVectors) -> None:
    report = encoder.report(["a zz b", "zz yy xx", "", "a a yy zz"])
    assert (report.captions, report.tokens, report.words) == (4, 10, 5)
    assert report.oov_tokens == 6
    assert report.oov_words == (("zz", 3), ("yy", 2), ("xx", 1))
    assert report.unknown_captions == (1, 2)
    assert report.text() == (
        "4 captions, 10 tokens, 5 distinct words; 6 tokens (60.00 %) of 3 words are out of "
        "vocabulary, most often zz (3), yy (2), xx (1). 2 captions have no known word and get a "
        "zero vector (first positions: 1, 2)."
    )


def test_report_of_nothing(encoder: MeanVectors) -> None:
    assert encoder.report([]).text() == (
        "0 captions, 0 tokens, 0 distinct words; 0 tokens (0.00 %) of 0 words are out of "
        "vocabulary. 0 captions have no known word."
    )


def test_recipe_is_json_and_names_everything(encoder: MeanVectors) -> None:
    shared: CaptionEncoder = encoder
    assert shared.name == "mean-toy"
    assert shared.weights == ("toy", "0" * 64)
    recipe = shared.recipe()
    assert canonical_json(recipe)
    assert set(recipe) == {"name", "encoder", "tokens", "vectors", "oov", "dim"}
