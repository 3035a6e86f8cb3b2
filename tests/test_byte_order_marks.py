"""A UTF-8 byte order mark, with which Windows begins texts, changes nothing in a text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.plain_images import read_list
from pipeline.language.captioning.captions_file import read_captions
from pipeline.retrieval.query.query_sentences import read_sentences
from pipeline.store.convert.importers.boxes import read_boxes
from pipeline.store.convert.importers.id_files import read_ids
from pipeline.studies.judgments import read_ratings
from pipeline.studies.relevance.relevance_file import read_relevance
from pipeline.text.vectors.corpus import read_lines
from stages.params import _read

RESULT = '{"image_id": 1, "bbox": [0, 0, 1, 1], "score": 1}'
RATING = '{"image_id": 1, "caption": "x", "rating": 1}\n'
CAPTION = '{"image_id": 1, "caption": "x"}'


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_lines, "corpus.txt", "a dog\na cat\n"),
        (read_sentences, "queries.txt", "a dog\na cat\n"),
        (read_ids, "ids.txt", "a.jpg\nb.jpg\n"),
        (read_boxes, "boxes.json", f"[{RESULT}]"),
        (read_captions, "captions.json", f"[{CAPTION}]"),
        (read_captions, "captions.jsonl", f"{CAPTION}\n"),
        (read_ratings, "ratings.jsonl", RATING),
        (_read, "params.yaml", "seed: 3\n"),
        (read_relevance, "relevance.json", '{"a.jpg": ["a.jpg#0"]}'),
        (read_relevance, "relevance.jsonl", '{"query": "a", "item": "b"}\n'),
    ],
)
def test_marks_are_skipped(
    tmp_path: Path, read: Callable[[Path], Any], name: str, text: str
) -> None:
    (plain := tmp_path / name).write_text(text)
    (marked := tmp_path / f"marked-{name}").write_text("\ufeff" + text)
    assert repr(read(marked)) == repr(read(plain))


@pytest.mark.parametrize("read", [read_lines, read_sentences, read_ids, read_list])
def test_marks_of_joined_files_are_skipped(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    (tmp_path / "joined.txt").write_text("\ufeffa dog\n\ufeffa cat\n")
    assert list(map(str, read(tmp_path / "joined.txt"))) == ["a dog", "a cat"]
