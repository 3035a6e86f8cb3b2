"""A space that adds up the words of captions and images: what its probes must find."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval.embeddings import Embeddings
from pipeline.studies import StudyError
from pipeline.studies.probes.probe import probe
from pipeline.studies.probes.probes_file import markdown, read_probes, write_probes

NOUNS = ("dog", "cat", "man", "bird")
COLOURS = ("red", "blue", "green")
WORDS = {word: k for k, word in enumerate((*NOUNS, *COLOURS, "two", "three", "left", "right"))}


def rows_of(texts: list[str]) -> np.ndarray:
    """Return the sum of the words' axes; the last axis is there always."""
    rows = np.zeros((len(texts), len(WORDS) + 1), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().removesuffix(".").split():
            if word in WORDS:
                row[WORDS[word]] += 1
        row[-1] = 0.1
    return rows


def searcher(splits: tuple[str, ...] = ("train", "test"), silent: str = "") -> Any:
    """Images of two things of two colours, each embedded as what is on it."""
    entries, said = [], []
    for split in splits:
        for one in NOUNS:
            for other in NOUNS:
                for colour in COLOURS:
                    if one == other:
                        continue
                    new = COLOURS[COLOURS.index(colour) - 1]
                    text = f"A {colour} {one} left of a {new} {other}."
                    name = f"{split}-{one}-{other}-{colour}"
                    texts = () if split == silent else (text, text.replace("A ", "One "))
                    entries.append(ImageEntry(name, f"{name}.jpg", split, texts))
                    said.append(text)
    manifest = Manifest("mine", Path(), tuple(entries), "", "", {})
    captions = manifest.captions()
    ids = [e.id for e in entries for _ in e.captions]
    space = Embeddings(
        manifest.ids, rows_of(said), captions.ids, ids, rows_of([*captions.texts]), "cosine",
        {"experiment": "x"},
    )  # fmt: skip
    models = SimpleNamespace(
        embed_sentences=lambda texts, log: rows_of(texts),
        without_known_word=lambda texts: {
            at for at, t in enumerate(texts) if not rows_of([t])[:, :-1].any()
        },
        keep_encoder=lambda texts: None,
    )
    return SimpleNamespace(
        embedded=SimpleNamespace(space=space, manifest=manifest, file=Path("x.h5")), models=models
    )


class Lines(list[str]):
    """A monitor that keeps its lines."""

    def log(self, line: str) -> None:
        self.append(line)


def test_a_sum_of_words_knows_words_and_not_their_order(tmp_path: Path) -> None:
    lines = Lines()
    found = probe(searcher(), monitor=lines)  # type: ignore[arg-type]
    assert (found.train, found.test, found.truth) == ("train", "test", "captions")
    asked = {(q.kind, q.question): q for q in found.questions}
    assert set(asked) == {
        *(("presence of nouns", noun) for noun in ("dog", "man")),
        *(("presence of colours", colour) for colour in COLOURS),
    }
    assert {q.auc["all"] for q in found.questions} == {100}
    assert {(q.train, q.test) for q in found.questions} == {(36, 36)}
    assert found.foils["noun"].right == found.foils["colour"].right == 100
    for kind in ("swapped nouns", "swapped colours", "shuffled words"):
        assert (found.foils[kind].right, found.foils[kind].ties) == (50, 100), kind
    assert found.foils["relation"].ties == 0
    assert "left out" in lines[0]
    assert "unknown to the encoder, such as" in lines[1]
    write_probes(tmp_path / "x.json", found)
    assert read_probes(tmp_path / "x.json") == found
    assert "| presence of colours | 3 | 36 | 100.0 |" in markdown(found)
    assert "| colour | 72 | 100.0 | 0.0 | 50.0 |" in markdown(found)


def test_without_training_images_there_are_foils_alone() -> None:
    lines = Lines()
    found = probe(searcher(("test",)), split="test", monitor=lines)  # type: ignore[arg-type]
    assert found.questions == ()
    assert found.foils["noun"].right == 100


def test_what_cannot_be_probed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no captioned image of the split 'test'"):
        probe(searcher(silent="test"))
    unknown = searcher()
    unknown.models.without_known_word = lambda texts: set(range(len(texts)))
    with pytest.raises(StudyError, match="no caption of 36 images"):
        probe(unknown)
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(StudyError, match="`pipeline probe` writes one"):
        read_probes(tmp_path / "x.json")
