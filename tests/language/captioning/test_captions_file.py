"""Files of captions: what is written is read again, in both forms, and bad ones are refused."""

import json
from pathlib import Path

import pytest

from pipeline.language import LanguageError
from pipeline.language.captioning.captions import Caption
from pipeline.language.captioning.captions_file import (
    Described,
    as_json,
    from_json,
    read_captions,
    read_provenance,
    write_captions,
)

DESCRIBED = [
    Described("17", (Caption("a dog", 0.5, {"cosine": 0.25}), Caption("a cat", 0.125))),
    Described("b.jpg", error="cannot be read"),
    Described("c.jpg", (Caption("ein Käse", -1.0),)),
]


@pytest.mark.parametrize("described", DESCRIBED)
def test_a_line_says_all(described: Described) -> None:
    assert from_json(json.loads(json.dumps(as_json(described)))) == described


def test_lines_and_cocos_array(tmp_path: Path) -> None:
    for ending in ("jsonl", "json"):
        write_captions(tmp_path / f"x.{ending}", DESCRIBED, {"seed": 3})
        assert read_provenance(tmp_path / f"x.{ending}") == {"seed": 3}
    everything = {"17": "a dog", "b.jpg": None, "c.jpg": "ein Käse"}
    assert read_captions(tmp_path / "x.jsonl") == everything
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"image_id": 17, "caption": "a dog"},
        {"image_id": "c.jpg", "caption": "ein Käse"},
    ]
    assert read_captions(tmp_path / "x.json") == {k: v for k, v in everything.items() if v}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no caption"),
        ("{", "line 1: JSON is malformed"),
        ("[]", "has no caption"),
        ('{"image_id": 1, "error": "unreadable"}\n', "has no caption"),
        ("[1]", r"\[0\]: Expected `object`"),
        ('{"image_id": 1}\n', "line 1: neither a caption nor an error"),
        ('[{"image_id": 1, "caption": "a\\nb"}]', "entry 1: the caption has a line break"),
        ('{"image_id": 1, "caption": "a"}\n' * 2, "line 2: image '1' has a caption already"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(LanguageError, match=fault):
        read_captions(tmp_path / "x.json")


def test_other_names_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match=r"ends in \.txt"):
        write_captions(tmp_path / "x.txt", DESCRIBED, {})
    with pytest.raises(LanguageError, match="no such file"):
        read_captions(tmp_path / "x.jsonl")
    assert read_provenance(tmp_path / "x.jsonl") == {}
