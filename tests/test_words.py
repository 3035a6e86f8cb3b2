"""Pages, docstrings, messages and comments use the words of the field, not those of the list."""

from pathlib import Path

import pytest

from tests import words
from tests.words import found_in, read_by_people

# Names and data that contain a listed word: file, or file and words.
_DATA = {
    "pipeline/text/tokenizers/word_lists.py",  # verbs and their forms
    "pipeline/studies/scenes/grammar.py",  # captions of drawn scenes and their relations
    "pipeline/studies/scenes/parse.py",
}
_NAMES = {
    ("README.md", "taking"),  # a caption
    ("docs/api/finetuning.md", "pictures"),  # a module
    ("docs/lab/word2visualvec.md", "stand"),  # a caption of Flickr8k
    ("pipeline/clips/clip_file.py", "picture"),  # reasons stored in rows
    ("pipeline/clips/sound/read_sound.py", "picture"),
    ("pipeline/language/architectures/attention_decoder.py", "tell"),  # titles of papers
    ("pipeline/language/architectures/lstm_decoder.py", "tell"),
    ("pipeline/language/scores/table.py", "says"),  # a column
    ("pipeline/regions/features.py", "picture"),  # part of a recipe, which is hashed
    ("bench/endurance/commands.py", "picture"),  # captions
    ("bench/replay/inputs.py", "picture"),
    ("bench/endurance/kills.py", "said"),  # a file name
    ("pipeline/store/shards/verify.py", "faults"),  # an attribute
}
_FAULTS = "bench/endurance/"  # fault injection


def _allowed(path: str, word: str) -> bool:
    return (
        path in _DATA
        or (path, word) in _NAMES
        or (path.startswith(_FAULTS) and word.startswith("fault"))
        # Classes and parameters called so.
        or (path.startswith("pipeline/datasets/readers/") and word == "faults")
    )


def test_texts_use_the_words_of_the_field() -> None:
    left = [
        f"{hit.path}:{hit.line}: {hit.word}: {hit.text}"
        for path in read_by_people()
        for hit in found_in(path)
        if not _allowed(hit.path, hit.word.lower())
    ]
    assert not left, "\n".join(["see docs/lab/style.md:", *left])


def test_the_list_finds_words_in_each_kind_of_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "PROJECT", tmp_path)
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("It gives\n`gives` rows and\n```\nit says\n```\nstands here.\n")
    module.write_text(
        '"""It gives a row.\n\npictures : it takes them.\n"""\n'
        'MESSAGE = "the file lies there"  # nobody wanted it\nNAME = "gives"\n'
    )
    assert [(hit.line, hit.word) for hit in found_in(page)] == [(1, "gives"), (6, "stands")]
    assert [(hit.line, hit.word) for hit in found_in(module)] == [
        (1, "gives"),
        (3, "takes"),
        (5, "lies"),
        (5, "wanted"),
    ]
