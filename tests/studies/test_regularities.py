"""Analogies over a space whose words and images are known to add up, and one where they do not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.image_truth import WordKind
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.errors import WrongUsage
from pipeline.studies.regularities import (
    PHOTOS,
    TOP,
    markdown,
    read_regularities,
    regularities,
    words_of_images,
    write_regularities,
)

NOUNS, COLOURS = ("dog", "car", "ball"), ("red", "blue", "green")
AXES = {word: np.eye(6, dtype=np.float32)[k] for k, word in enumerate((*NOUNS, *COLOURS))}
NAMES = [(noun, colour, k) for noun in NOUNS for colour in COLOURS for k in range(TOP + 1)]


def searcher(rng: np.random.Generator | None = None) -> Any:
    """Embed each image as noun + colour, or without regard to them."""
    ids = tuple(f"{noun}-{colour}-{k}" for noun, colour, k in NAMES)
    entries = tuple(
        ImageEntry(
            image, f"{image}.jpg", "test", (f"A {colour} {noun}.", f"The {noun} is {colour}")
        )
        for image, (noun, colour, _) in zip(ids, NAMES, strict=True)
    )
    rows = np.stack([AXES[noun] + AXES[colour] for noun, colour, _ in NAMES])
    if rng is not None:
        rows = rng.normal(size=rows.shape).astype(np.float32)
    space = Embeddings(ids, rows, ids, ids, rows, "cosine", {"experiment": "x"})

    def embed(words: list[str], log: Any) -> Any:
        if words[0] not in AXES:
            raise EmbeddingsError("unknown")
        return AXES[words[0]][None]

    return SimpleNamespace(
        similarity="cosine",
        embedded=SimpleNamespace(
            space=space, manifest=Manifest("mine", Path(), entries, "", "", {})
        ),
        models=SimpleNamespace(embed_sentences=embed, keep_encoder=lambda texts: None),
    )


def test_where_words_add_up_the_new_word_is_found_and_the_rest_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    found = regularities(searcher(), lines.append)
    colours = found.kinds["colours"]
    assert (colours["analogies"], colours["queries"]) == (6, 6 * 3 * (TOP + 1))
    assert [colours[f"composed_{name}"] for name in ("has", "keeps", "both")] == [100, 100, 100]
    # The image alone finds its equals, the word alone whatever has it.
    assert (colours["image_has"], colours["image_keeps"]) == (0, 100)
    assert colours["word_has"] == 100
    assert colours["word_both"] < 50
    assert colours["chance"] == pytest.approx(100 * 18 / 53)
    assert colours["gain"] == pytest.approx(100 - colours["word_both"])
    assert colours["gain_low"] < colours["gain"] < colours["gain_high"]
    assert found.pairs["colours"]["red - blue"] == {
        "queries": 18, "has": 100, "keeps": 100, "both": 100,
    }  # fmt: skip
    change, _, same = found.sheets["colours"]
    assert {image.split("-")[1] for image in change.nearest} == {change.plus}
    assert (same.image, same.minus, same.plus) == (change.image, change.minus, change.minus)
    assert {image[:-2] for image in same.nearest} == {same.image[:-2]}
    assert set(found.planes["colours"].words) == set(COLOURS)
    assert "woman" in lines[0]
    write_regularities(tmp_path / "x.json", found)
    assert read_regularities(tmp_path / "x.json").kinds == found.kinds
    assert markdown(found).splitlines()[2].startswith("| nouns | 6 | 108 | 100.0 |")


def test_where_they_do_not_it_is_chance() -> None:
    colours = regularities(searcher(np.random.default_rng(0)), print).kinds["colours"]
    assert colours["composed_both"] < 30


@pytest.mark.parametrize("lengths", [False, True])
def test_rules_of_a_direct_formula(lengths: bool) -> None:
    """Re-sorted around the mean of 10, and from vectors as they are where lengths differ from 1."""
    rng = np.random.default_rng(0)
    asked = searcher(rng)
    rows = asked.embedded.space.image_embeddings
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if lengths:
        rows *= 1 + rng.random((len(rows), 1), np.float32)
    found = regularities(asked, print, around_mean=10)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def nearest(query: np.ndarray, own: int) -> list[int]:
        scores = {k: float(query @ row) for k, row in enumerate(units) if k != own}
        return sorted(scores, key=lambda k: -scores[k])

    both: dict[str, list[float]] = {"composed": [], "resorted": [], "unscaled": []}
    for old in COLOURS:
        for new in {*COLOURS} - {old}:
            for own, (noun, colour, _) in enumerate(NAMES):
                if colour != old:
                    continue
                change = AXES[new] - AXES[old]
                best = nearest(units[own] + change, own)
                mean = units[best[:10]].mean(axis=0)
                again = sorted(best[:10], key=lambda k: float(np.linalg.norm(units[k] - mean)))
                hits = {"composed": best, "resorted": again}
                hits["unscaled"] = nearest(rows[own] + change, own)
                for rule, order in hits.items():
                    right = [NAMES[k][:2] == (noun, new) for k in order[:TOP]]
                    both[rule].append(100 * sum(right) / TOP)
    if not lengths:
        del both["unscaled"]
    kind = found.kinds["colours"]
    assert {rule: kind[f"{rule}_both"] for rule in both} == {
        rule: pytest.approx(sum(values) / len(values)) for rule, values in both.items()
    }
    heading = markdown(found).splitlines()[0]
    assert ("both: re-sorted" in heading, "without unit length" in heading) == (True, lengths)
    assert ("unscaled_both" in kind) == lengths
    assert "re-sorted" not in markdown(regularities(asked, print))


def test_fewer_images_than_hits_cannot_be_re_sorted() -> None:
    with pytest.raises(WrongUsage, match="fewer than the 5 hits"):
        regularities(searcher(), print, around_mean=4)


def test_an_image_has_a_word_that_two_captions_have() -> None:
    entries = (
        ImageEntry("a", "a", "test", ("A red dog.", "Dogs", "A cat")),
        ImageEntry("b", "b", "test", ("A red dog.", "A cat")),
        ImageEntry("c", "c", "test", ("A dog",)),
    )
    manifest = Manifest("mine", Path(), entries, "", "", {})

    has = words_of_images(manifest, ["a", "b", "c"], PHOTOS[:2])
    assert has["nouns"]["dog"].tolist() == [True, False, True]
    assert not has["colours"]["red"].any()


class Annotated:
    """Attributes of images as a file of annotations could have them."""

    kinds = (
        WordKind.of("objects", "sizes", "dog,Canis car ball"),
        WordKind.of("sizes", "objects", "small large"),
    )

    def words(self, image: str) -> dict[str, set[str]]:
        return {"objects": {"Canis"} if image == "dog-red-0" else {image.partition("-")[0]}}


def test_known_words_replace_those_of_captions() -> None:
    """Kinds and words are those of the dataset; of `sizes` it knows nothing."""
    found = regularities(searcher(), lambda line: None, Annotated())
    assert found.kinds.keys() == {"objects"}
    assert found.kinds["objects"]["analogies"] == 6
    assert found.kinds["objects"]["composed_has"] == 100
    has = words_of_images(
        searcher().embedded.manifest, ["dog-red-0", "car-red-0"], Annotated.kinds, Annotated()
    )
    assert has["objects"]["dog"].tolist() == [True, False]
    assert not has["sizes"]["small"].any()


def test_other_similarities_and_damaged_files_are_refused(tmp_path: Path) -> None:
    other = searcher()
    other.similarity = "order"
    with pytest.raises(EmbeddingsError, match="cosine"):
        regularities(other, print)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(EmbeddingsError, match="not a file of regularities"):
        read_regularities(tmp_path / "x.json")
