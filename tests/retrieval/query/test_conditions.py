"""Conditions against a loop over entries; what is refused, and how long a pattern may take."""

import re
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query import conditions
from pipeline.retrieval.query.conditions import Condition, Fields

METADATA: dict[str, dict[str, Any]] = {
    f"vacation/{k}.jpg": {
        "year": 2015 + k % 7,
        "tags": [f"t{k % 3}", "sea"][: 1 + k % 2],
        **({"stars": str(k % 4 + 0.5)} if k % 5 else {}),
        "Place": f"place {k}",
        "own": k % 2 == 0,
    }
    for k in range(40)
}
ENTRIES = [
    ImageEntry(name, f"files/{k}.jpg", ("train", "val", "test")[k % 3], ())
    for k, name in enumerate([*METADATA, "home/a b=c.jpg"])
]
FIELDS = Fields(PackedEntries.of(ENTRIES), METADATA)


def values(entry: ImageEntry, field: str) -> list[Any]:
    if field in ("id", "file", "split"):
        return [getattr(entry, field)]
    value = METADATA.get(entry.id, {}).get(field, [])
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("split=test", lambda e: e.split == "test"),
        (" split != test ", lambda e: e.split != "test"),
        ("id~^vacation/1", lambda e: e.id.startswith("vacation/1")),
        ("id=home/a b=c.jpg", lambda e: e.id == "home/a b=c.jpg"),
        ("file~[13]\\.jpg$", lambda e: re.search(r"[13]\.jpg$", e.file)),
        ("year>2018", lambda e: any(v > 2018 for v in values(e, "year"))),
        ("year<=2016.5", lambda e: any(v <= 2016.5 for v in values(e, "year"))),
        ("year=2017", lambda e: 2017 in values(e, "year")),
        ("stars>=2.5", lambda e: any(float(v) >= 2.5 for v in values(e, "stars"))),
        ("stars!=0.5", lambda e: "0.5" not in values(e, "stars")),
        ("tags=sea", lambda e: "sea" in values(e, "tags")),
        ("tags!=sea", lambda e: "sea" not in values(e, "tags")),
        ("own=true", lambda e: True in values(e, "own")),
        ("Place~(?i)PLACE 1", lambda e: any("place 1" in v for v in values(e, "Place"))),
    ],
)  # fmt: skip
def test_conditions_select_what_a_loop_selects(condition: str, holds: Any) -> None:
    expected = [bool(holds(entry)) for entry in ENTRIES]
    assert 0 < sum(expected) < len(ENTRIES)
    assert FIELDS.matching([Condition.of(condition)]).tolist() == expected
    both = FIELDS.matching([Condition.of(condition), Condition.of("split=val")])
    assert both.tolist() == [e and x.split == "val" for e, x in zip(expected, ENTRIES, strict=True)]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("test", "is not a condition; expected FIELD=VALUE"),
        ("=test", "is not a condition"),
        ("splt=test", r"no field 'splt' \(did you mean split\?\); the dataset has id, file, split"),
        ("place=x", r"no field 'place' \(did you mean Place\?\)"),
        ("id~(", r"regular expression '\(' of 'id' does not compile \(missing \)"),
        ("id~(a)\\1", "RE2, without lookarounds and references"),
        ("id<3", "'id' is not a column of numbers"),
        ("year<soon", "'soon' is not a number"),
        ("id=" + "x" * 1000, "1003 characters; the limit is 1000"),
    ],
)
def test_what_is_refused(condition: str, message: str) -> None:
    with pytest.raises(EmbeddingsError, match=message):
        FIELDS.matching([Condition.of(condition)])


def test_patterns_that_hang_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(["a" * 60] * 2000)
    started = time.process_time()
    for pattern in ("(a+)+$!", "(a|a)*b", "(.*a){20}x", "((a?){30}){30}b"):
        condition = Condition("id", "~", pattern)
        assert not conditions._matches(texts, condition, time.monotonic()).any()
    assert time.process_time() - started < 5
    with pytest.raises(EmbeddingsError, match="take longer than 5 s for 2000 values"):
        conditions._matches(texts, Condition("id", "~", "a"), time.monotonic() - 6)
    # The limit is that of all conditions together.
    clock = iter(range(1000))
    monkeypatch.setattr(conditions, "monotonic", lambda: next(clock))
    FIELDS.matching([Condition.of("id~a")])
    with pytest.raises(EmbeddingsError, match="use simpler ones"):
        FIELDS.matching([Condition.of("id~a")] * 9)


def test_small_columns_are_offered() -> None:
    every = np.arange(len(ENTRIES))
    assert FIELDS.choices(every) == {
        "split": ("test", "train", "val"),
        "own": ("false", "true"),
        "stars": ("0.5", "1.5", "2.5", "3.5"),
        "tags": ("sea", "t0", "t1", "t2"),
        "year": tuple(str(2015 + k) for k in range(7)),
    }
    assert FIELDS.choices(every[:3])["year"] == ("2015", "2016", "2017")
