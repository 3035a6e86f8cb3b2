"""Packed texts against lists and dicts."""

import random

import numpy as np
import pytest

from pipeline.store.packed import PackedTexts, TextIndex, TextMapping, repeated_texts, sorted_order

ODD = ["", "a", "é", "a", "日本", "x\x00y", "a#0", "", "z" * 70_000]


@pytest.mark.parametrize("texts", [[], ["one"], ODD, [f"{n}#{n % 5}" for n in range(70_001)]])
def test_packed_texts_are_the_list_that_they_were_made_of(texts: list[str]) -> None:
    packed = PackedTexts(iter(texts))
    assert list(packed) == texts
    assert packed == texts
    assert len(packed) == len(texts)
    for part in (slice(None), slice(None, None, -3), slice(2, 5), slice(5, 2), slice(-2, None)):
        assert packed[part] == texts[part]
    middle = packed.part(len(texts) // 3, len(texts) // 2)
    assert middle == texts[len(texts) // 3 : len(texts) // 2]
    assert middle[1:] == texts[len(texts) // 3 : len(texts) // 2][1:]
    assert packed != [*texts, "more"]
    assert packed != "text"
    for row in (0, len(texts) - 1, -1) if texts else ():
        assert packed[row] == texts[row]
    with pytest.raises(IndexError):
        packed[len(texts)]
    rows = np.arange(len(texts))[::-2]
    assert packed.take(rows) == [texts[row] for row in rows]
    assert PackedTexts.joined([packed, PackedTexts(), packed]) == [*texts, *texts]


def test_half_a_surrogate_pair_cannot_be_packed() -> None:
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        PackedTexts(["a", "\ud800"])


def test_index_finds_what_a_dict_finds_and_no_more() -> None:
    texts = [f"image-{n}.jpg" for n in range(40_000)]
    random.Random(0).shuffle(texts)
    asked = [*texts[::7], "absent", "", *texts[:3]]
    where = {text: row for row, text in enumerate(texts)}
    found = TextIndex(PackedTexts(texts)).rows_of(iter(asked), len(asked))
    np.testing.assert_array_equal(found, [where.get(text, -1) for text in asked])
    assert TextIndex([]).rows_of(["a"], 1).tolist() == [-1]


def test_texts_whose_hashes_fall_together_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pipeline.store.packed._hashes",
        lambda texts, number: np.array([len(text) for text in texts], np.int64),
    )
    texts = ["aa", "bb", "cc", "d", "bb", "aa"]
    assert repeated_texts(texts) == ["aa", "bb"]
    index = TextIndex(["aa", "bb", "cc", "d"])
    assert index.rows_of(["bb", "dd", "d", "cc"], 4).tolist() == [1, -1, 3, 2]


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b", "b"], ["é", "b", "a", "b", "\uffff"]])
def test_sorted_order_is_that_of_code_points_and_stable(texts: list[str]) -> None:
    expected = sorted(range(len(texts)), key=texts.__getitem__)
    assert sorted_order(PackedTexts(texts)).tolist() == expected


@pytest.mark.parametrize("texts", [[], ["a"], ["b", "a", "b", "a", "c", "b"]])
def test_repeated_texts_in_order_of_their_first_occurrence(texts: list[str]) -> None:
    expected = [t for t in dict.fromkeys(texts) if texts.count(t) > 1]
    assert repeated_texts(texts) == expected


def test_a_mapping_is_the_dict_of_its_texts_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for hashes in ("", "all equal"):
        if hashes:
            monkeypatch.setattr(
                "pipeline.store.packed._hashes", lambda texts, number: np.zeros(number, np.int64)
            )
        texts = ["b", "", "日本", "a", "é"]
        mapping = TextMapping(PackedTexts(texts), range(5))
        assert dict(mapping) == {text: row for row, text in enumerate(texts)}
        assert "a" in mapping
        assert "c" not in mapping
        assert 3 not in mapping
        assert mapping.get("c", -1) == -1
        assert mapping.lacking(["c", "a", "d", "c"]) == ["c", "d", "c"]
        with pytest.raises(KeyError, match="'c'"):
            mapping["c"]
    assert dict(TextMapping[int]([], [])) == {}
