"""Sentences are lines of text with a word in them."""

from pathlib import Path

import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.query_sentences import read_sentences, require_lines


def test_sentences_are_lines_of_text() -> None:
    require_lines(["a", "a b"])
    with pytest.raises(EmbeddingsError, match="2 of 2, 'a\\\\nb', has a line break"):
        require_lines(["a", "a\nb"])


def test_a_file_of_sentences_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "asked"
    for text, expected in (("a\nb c\n", ["a", "b c"]), ("é", ["é"])):
        path.write_text(text, encoding="utf-8")
        assert read_sentences(path) == expected
    for data, message in (
        (b"a\n\nb\n", "asked: line 2 of 3, '', is empty"),
        (b"", "line 1 of 1"),
        (b"\xff", "not UTF-8"),
    ):
        path.write_bytes(data)
        with pytest.raises(EmbeddingsError, match=message):
            read_sentences(path)
