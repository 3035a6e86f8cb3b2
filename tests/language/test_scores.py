"""BLEU, ROUGE-L and CIDEr-D against COCO's own programs, and the table of all scores.

The numbers of `GOLDEN` were computed by pycocoevalcap 1.2 with its PTB tokenizer (Java), once, for
the captions below, which were written for this test.
"""

import math

import pytest

from pipeline.language import LanguageError
from pipeline.language.scores.bleu import bleu
from pipeline.language.scores.cider import cider_d
from pipeline.language.scores.rouge import longest_common_subsequence, rouge_l
from pipeline.language.scores.table import COLUMNS, TOKENIZER, score, score_truth, truth_columns

REFERENCES = {
    "hen": ["A brown hen walks along the fence.", "A hen beside a fence", "One chicken outdoors."],
    "boat": ["Two men row a small boat.", "Men in a boat, rowing hard!", "A boat on the lake"],
    "kite": ["A girl's kite flies over the beach", "The kite isn't flying very high."],
    "tram": ["A yellow tram turns at the corner of a busy street on a rainy evening."],
    "cup": ["A cup.", "White tea-cup on a wooden table", "a cup on a table"],
    "goat": ["A goat eats the farmer's hat", "The goat has a hat in its mouth", "A goat, a hat"],
}
CAPTIONS = {
    "hen": "A brown hen walks along the fence.",
    "boat": "a boat a boat a boat on the lake",
    "kite": "A girl's kite isn't high",
    "tram": "A tram",
    "cup": "cup",
    "goat": "zebras gallop elsewhere",
}
GOLDEN = {
    "bleu": [50.15527562792316, 46.50353758232299, 44.37394429348363, 41.225080377706874],
    "rouge": [1, 0.7530864197530864, 0.5714285714285714, 0.20677966101694914, 0.6288659793814433,
              0],
    "cider": [3.739988633020725, 1.6191265972057152, 3.387035845268712, 0.07500795016110161,
              1.2769577508991836, 0],
}  # fmt: skip


def words(texts: dict[str, str]) -> list[list[str]]:
    return [TOKENIZER.tokenize(text) for text in texts.values()]


def words_of_each(texts: dict[str, list[str]]) -> list[list[list[str]]]:
    return [[TOKENIZER.tokenize(text) for text in of_image] for of_image in texts.values()]


def test_the_scores_are_those_of_cocos_programs() -> None:
    given = words(CAPTIONS), words_of_each(REFERENCES)
    # COCO's BLEU adds 1e-9 to its counts.
    assert [100 * v for v in bleu(*given)] == pytest.approx(GOLDEN["bleu"], rel=1e-8)
    assert rouge_l(*given) == pytest.approx(GOLDEN["rouge"], rel=1e-12)
    assert cider_d(*given) == pytest.approx(GOLDEN["cider"], rel=1e-12)


def test_a_caption_that_is_its_reference_has_every_score_in_full() -> None:
    texts = [list("abcdefgh"), list("ijklmnop"), list("qrstuvwx")]
    alone = [[text] for text in texts]
    assert bleu(texts, alone) == [1, 1, 1, 1]
    assert rouge_l(texts, alone) == pytest.approx([1, 1, 1])
    assert cider_d(texts, alone) == pytest.approx([10, 10, 10])


def test_of_two_equally_near_references_the_shorter_one_counts() -> None:
    """As in COCO's program: of 9 and 11 words for a caption of 10, 9, so that nothing is taken."""
    caption = list("abcdefghij")
    for references in ([caption[:9], [*caption, "k"]], [[*caption, "k"], caption[:9]]):
        assert bleu([caption], [references]) == [1, 1, 1, 1]


def test_a_caption_that_is_longer_than_its_reference_has_no_bonus() -> None:
    captions, references = [list("abcde"), ["x"]], [[list("abc")], [["x"]]]
    # Of 6 words 4 match; of 4 pairs 2, of 3 triples 1.
    orders = [4 / 6, 2 / 4, 1 / 3]
    expected = [math.prod(orders[:n]) ** (1 / n) for n in (1, 2, 3)]
    assert bleu(captions, references) == pytest.approx([*expected, 0])


def test_captions_of_one_word_have_the_first_order_in_full_and_no_other() -> None:
    assert bleu([["dog"]], [[["dog"]]]) == [1, 0, 0, 0]
    assert cider_d([["dog"], ["cat"]], [[["dog"]], [["cat"]]]) == pytest.approx([2.5, 2.5])


@pytest.mark.parametrize("text", [[], ["zebra"]])
def test_nothing_in_common_scores_nothing(text: list[str]) -> None:
    others = [[["a", "hat"], ["hats"]]]
    assert (bleu([text], others), rouge_l([text], others), cider_d([text], others)) == (
        [0, 0, 0, 0], [0], [0],
    )  # fmt: skip


def test_an_empty_set_scores_nothing_and_sides_are_of_one_length() -> None:
    assert (bleu([], []), cider_d([], [])) == ([0, 0, 0, 0], [])
    for figure in (bleu, cider_d):
        for captions, references in ((2, 1), (1, 2)):
            with pytest.raises(ValueError, match="zip"):
                figure([["a"]] * captions, [[["a"]]] * references)


def test_an_empty_reference_has_nothing_in_common() -> None:
    assert rouge_l([["a", "hat"]], [[[], ["a", "hat"]]]) == pytest.approx([1])
    assert rouge_l([["a"], []], [[[]], [["a"], []]]) == [0, 0]


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [("", "", 0), ("a", "", 0), ("abcbdab", "bdcaba", 4), ("abc", "abc", 3), ("abc", "cba", 1)],
)
def test_longest_common_subsequence(first: str, second: str, length: int) -> None:
    assert longest_common_subsequence(list(first), list(second)) == length
    assert longest_common_subsequence(list(second), list(first)) == length


def test_the_table_counts_words_copies_and_gaps() -> None:
    captions = {"hen": "A hen!", "boat": "A hen", "kite": "The kite flies"}
    row = score(captions, REFERENCES, training=["the kite flies.", "A boat"])
    assert list(row) == list(COLUMNS)
    assert row["mean_length"] == pytest.approx(7 / 3)
    assert (row["vocabulary"], row["num_images"], row["num_without_caption"]) == (5, 3, 3)
    assert row["distinct"] == pytest.approx(200 / 3)
    assert row["verbatim"] == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("captions", "references", "fault"),
    [
        ({"cow": "a cow"}, REFERENCES, "first \\['cow'\\]"),
        ({}, REFERENCES, "no caption to score"),
        ({"hen": "a hen"}, {"hen": ["..."]}, "1 image has no reference"),
    ],
)
def test_what_cannot_be_scored_is_said(
    captions: dict[str, str], references: dict[str, list[str]], fault: str
) -> None:
    with pytest.raises(LanguageError, match=fault):
        score(captions, references)


class Colours:
    """Annotated colours of images, and what a caption that begins with "a" says of them."""

    facets = ("colour", "size")

    def __init__(self, colours: dict[str, str]) -> None:
        self._colours = colours

    def judge(self, image: str, caption: str) -> dict[str, bool] | None:
        found = caption.split()
        if found[0] != "a":
            return None
        said = {"red", "blue"} & {*found}
        return {"colour": said == {self._colours[image]}} if said else {}


def test_any_dataset_may_check_captions() -> None:
    truth = Colours({"x": "red", "y": "red", "z": "blue", "w": "blue"})
    captions = {"x": "a red dog", "y": "a blue dog", "z": "a dog", "w": "dog a"}
    row = score_truth(captions, truth)
    assert row == {
        "parsed": 75, "true": 50, "true_colour": 50,
        "says_colour": pytest.approx(200 / 3), "says_size": 0,
    }  # fmt: skip
    columns = truth_columns(truth)
    assert [*columns] == [
        "parsed", "true", "true_colour", "true_size", "says_colour", "says_size"
    ]  # fmt: skip
    assert columns["says_size"] == "says size"
    assert truth_columns(None) == {}
    assert score_truth({"w": "dog a"}, truth)["says_colour"] == 0
