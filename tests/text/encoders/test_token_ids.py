"""Token ids: words, marks, padding and cutting, by hand and against a plain loop."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.text import EncoderError
from pipeline.text.encoders.base import VocabularyReport
from pipeline.text.encoders.token_ids import (
    END,
    FIRST_WORD,
    PADDING,
    START,
    TOKEN_LAYOUTS,
    UNKNOWN,
    TokenIds,
    longest_caption,
)
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import VOCABULARY_RULES, build_vocabulary

TOKENIZER = TOKENIZERS["treebank"]
KNOWN = build_vocabulary(["dog dog dog cat cat bird"], TOKENIZER, VOCABULARY_RULES["all"])
DOG, CAT, BIRD = 4, 5, 6


def test_numbers() -> None:
    assert (PADDING, UNKNOWN, START, END, FIRST_WORD) == (0, 1, 2, 3, 4)
    assert TokenIds(KNOWN, TOKENIZER, 5).vocab_size == 7


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ("vsepp", [[2, 4, 1, 5, 3, 0], [2, 4, 4, 4, 4, 3], [2, 3, 0, 0, 0, 0]]),
        ("kiros", [[4, 1, 5, 3, 0, 0], [4, 4, 4, 4, 4, 3], [3, 0, 0, 0, 0, 0]]),
        ("w2vv", [[0, 0, 0, 4, 1, 5], [4, 4, 4, 4, 4, 6], [0, 0, 0, 0, 0, 0]]),
        ("yan", [[0, 0, 0, 0, 4, 5], [4, 4, 4, 4, 4, 6], [0, 0, 0, 0, 0, 0]]),
        ("words", [[4, 5, 0, 0, 0, 0], [4, 4, 4, 4, 4, 6], [0, 0, 0, 0, 0, 0]]),
    ],
)
def test_layouts_by_hand(layout: str, rows: list[list[int]]) -> None:
    encoder = TokenIds(KNOWN, TOKENIZER, 6, TOKEN_LAYOUTS[layout])
    texts = ["dog unheard cat", "dog dog dog dog dog bird cat", "!"]
    found = encoder.encode(texts)
    assert found.dtype == np.float32
    assert found.tolist() == rows
    assert report_of(encoder, texts).cut == (1,)


def report_of(encoder: TokenIds, texts: list[str]) -> VocabularyReport:
    (report,) = encoder.reports(texts).values()
    return report


@pytest.mark.parametrize("name", TOKEN_LAYOUTS)
@pytest.mark.parametrize("room", [1, 2, 5, 20])
def test_words_come_back(name: str, room: int) -> None:
    layout = TOKEN_LAYOUTS[name]
    encoder = TokenIds(KNOWN, TOKENIZER, room + layout.start + layout.end, layout)
    rng = np.random.default_rng(5)
    words = np.array(["dog", "cat", "bird", "unheard"])
    texts = [" ".join(rng.choice(words, size=rng.integers(0, 9))) for _ in range(30)]
    numbers = {"dog": DOG, "cat": CAT, "bird": BIRD, "unheard": UNKNOWN}
    rows = encoder.encode(texts)
    assert rows.shape == (30, encoder.dim)
    for row, text in zip(rows, texts, strict=True):
        ids = [numbers[word] for word in text.split()]
        if layout.unknown == "dropped":
            ids = [number for number in ids if number != UNKNOWN]
        kept = [START] * layout.start + ids[:room] + [END] * layout.end
        assert [number for number in row if number != PADDING] == kept
        blank = np.flatnonzero(row == PADDING)
        at = 0 if layout.padding == "front" else len(kept)
        assert blank.tolist() == list(range(at, at + encoder.dim - len(kept)))


@pytest.mark.parametrize("name", TOKEN_LAYOUTS)
def test_longest_caption_cuts_nothing(name: str) -> None:
    layout = TOKEN_LAYOUTS[name]
    texts = ["dog", "dog cat bird dog", "!"]
    length = longest_caption(texts, TOKENIZER, layout)
    assert length == 4 + layout.start + layout.end
    assert report_of(TokenIds(KNOWN, TOKENIZER, length, layout), texts).cut == ()
    assert report_of(TokenIds(KNOWN, TOKENIZER, length - 1, layout), texts).cut == (1,)
    TokenIds(KNOWN, TOKENIZER, longest_caption([], TOKENIZER, layout), layout)


def test_one_long_text_does_not_lengthen_all_rows() -> None:
    texts, layout = ["dog", "cat " * 20_000], TOKEN_LAYOUTS["vsepp"]
    encoder = TokenIds(KNOWN, TOKENIZER, longest_caption(texts, TOKENIZER, layout), layout)
    assert encoder.encode(texts).shape == (2, 514)
    assert report_of(encoder, texts).cut == (1,)


def test_report_counts_what_is_unknown() -> None:
    report = report_of(TokenIds(KNOWN, TOKENIZER, 5), ["dog zz", "zz yy"])
    assert report.oov_words == (("zz", 2), ("yy", 1))
    assert report.unknown_captions == (1,)
    assert "1 caption has no known word and gets only marks, unknown ids" in report.text()


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        ("vsepp", "only marks, unknown ids, padding"),
        ("w2vv", "only unknown ids, padding"),
        ("yan", "only padding"),
    ],
)
def test_report_is_of_the_words_that_a_row_holds(layout: str, row: str) -> None:
    texts = ["zz yy dog", "dog zz cat bird xx", "dog cat", ""]
    chosen = TOKEN_LAYOUTS[layout]
    report = report_of(TokenIds(KNOWN, TOKENIZER, 2 + chosen.marks, chosen), texts)
    assert report.unknown_row == row
    if chosen.unknown == "number":
        assert (report.cut, report.unknown_captions, report.tokens) == ((0, 1), (0, 3), 6)
    else:
        assert (report.cut, report.unknown_captions, report.tokens) == ((1,), (3,), 8)


def test_captions_that_the_policy_cuts_are_told_too() -> None:
    tokenizer = replace(TOKENIZER, name="short", max_length=2)
    known = build_vocabulary(["dog cat"], tokenizer, VOCABULARY_RULES["all"])
    texts = ["dog cat", "dog cat dog", "dog zz zz"]
    report = report_of(TokenIds(known, tokenizer, 9), texts)
    assert (report.cut, report.tokens, report.oov_tokens) == ((1, 2), 6, 1)
    assert report.text().endswith("2 captions lose their last words (first positions: 1, 2).")


def test_no_place_for_a_word() -> None:
    with pytest.raises(EncoderError, match=r"a row of 2 token ids.*has 2 marks; set a length of 3"):
        TokenIds(KNOWN, TOKENIZER, 2)
    with pytest.raises(EncoderError, match="a row of 0 token ids"):
        TokenIds(KNOWN, TOKENIZER, 0, TOKEN_LAYOUTS["w2vv"])
