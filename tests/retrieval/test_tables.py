"""Recall tables on disk: round trip, columns, escaping, refusals."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.measures import COUNTS, METRICS
from pipeline.retrieval.tables import (
    SEEN,
    SEEN_LEGEND,
    SEEN_SIGN,
    Row,
    markdown_table,
    read_recall,
    write_joint_table,
    write_recall,
)

RECALL: dict[str, float | int] = {name: 10 + k / 3 for k, name in enumerate(METRICS)} | {
    "image_to_text_median_rank": 4,
    "num_images": 1000,
    "num_captions": 5000,
    "captions_per_image": 5,
}


def test_one_experiment_round_trip(tmp_path: Path) -> None:
    as_json, as_csv = write_recall(tmp_path / "reports" / "x", RECALL)
    assert (as_json.name, as_csv.name) == ("recall.json", "recall.csv")
    assert read_recall(as_json) == RECALL
    (row,) = csv.DictReader(as_csv.read_text().splitlines())
    assert list(row) == [*METRICS, *COUNTS]
    assert {name: float(value) for name, value in row.items()} == RECALL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rsum": None}, "missing columns .*'rsum'"),
        ({"extra": 1.0}, "unknown columns .*'extra'"),
        ({"rsum": float("nan")}, r"'rsum' is nan|JSON is malformed"),
        ({"rsum": "12"}, "'rsum' is '12'"),
        ({"num_images": True}, "'num_images' is True"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    damaged = {k: v for k, v in (RECALL | change).items() if v is not None}
    with pytest.raises(EmbeddingsError, match=message):
        write_recall(tmp_path, damaged)
    assert not list(tmp_path.iterdir())
    path = tmp_path / "recall.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(EmbeddingsError, match=message) as caught:
        read_recall(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "no such recall table"), (b"\xff{", "is corrupt"), (b"[1]", "got `array`")],
)
def test_files_that_are_no_table(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "recall.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(EmbeddingsError, match=message):
        read_recall(path)


def test_joint_table_keeps_order_and_digits(tmp_path: Path) -> None:
    experiments = {
        "zeta": RECALL | {"dataset": "scenes", "weights": "random:0"},
        "alpha": RECALL | {"dataset": 'a "b", c\nd', "text encoder": "mean-glove-6b-50d"},
    }
    as_json, as_csv, as_markdown = write_joint_table(tmp_path, experiments)
    rows = json.loads(as_json.read_text())
    assert [row["experiment"] for row in rows] == ["zeta", "alpha"]
    assert rows[1] == {"experiment": "alpha", **experiments["alpha"]}
    with as_csv.open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert list(table[0])[:5] == ["experiment", "dataset", "weights", "text encoder", METRICS[0]]
    assert table[1]["dataset"] == 'a "b", c\nd'
    assert table[0]["text encoder"] == ""
    assert float(table[0]["image_to_text_r5"]) == RECALL["image_to_text_r5"]
    assert as_markdown.read_text() == markdown_table(experiments)


def test_markdown_groups_directions_and_rounds() -> None:
    text = markdown_table({"one": RECALL | {"dataset": "scenes/test"}})
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({len(line) for line in table}) == 1, "columns are aligned"
    (head, _, row), (counted, _, values) = (
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
        for table in tables
    )
    measures = ("R@1", "R@5", "R@10", "medr", "meanr")
    assert head == ["experiment", *(f"{d} {m}" for d in ("i→t", "t→i") for m in measures), "rsum"]
    assert row[:5] == ["one", "10.0", "10.3", "10.7", "4.0"]
    assert counted == ["experiment", "dataset", "images", "captions", "captions an image"]
    assert values == ["one", "scenes/test", "1000", "5000", "5"]


def test_markdown_shows_text_as_text() -> None:
    name = "a|b\n<script>x</script> & *bold* `code` [link](u) \\| under_score"
    text = markdown_table({name: RECALL | {"weights": ""}})
    assert len(text.splitlines()) == 3 + 1 + 1 + 1 + 3
    escaped = (
        r"| a\|b &lt;script&gt;x&lt;/script&gt; &amp; \*bold\* \`code\` \[link\](u) \\\| "
        r"under\_score |"
    )
    assert text.splitlines()[2].startswith(escaped)
    assert text.splitlines()[-1].startswith(f"{escaped} –")


def test_no_experiments(tmp_path: Path) -> None:
    paths = write_joint_table(tmp_path, {})
    assert json.loads(paths[0].read_text()) == []
    assert [len(path.read_text().splitlines()) for path in paths[1:]] == [1, 2 + 3 + 2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({k: v for k, v in RECALL.items() if k != "rsum"}, "missing columns .*'rsum'"),
        (RECALL | {"seconds": 1.5}, "unknown columns .*'seconds'"),
        (RECALL | {"experiment": "two"}, "'experiment'"),
    ],
)
def test_joint_refusals_name_the_experiment(row: Row, message: str) -> None:
    with pytest.raises(EmbeddingsError, match=f"'one'.*{message}"):
        markdown_table({"one": row})


def test_rows_whose_encoders_have_seen_the_dataset_bear_a_sign() -> None:
    rows: dict[str, Row] = {"clean": RECALL, "a_b": {**RECALL, SEEN: "captions: snli"}}
    table = markdown_table(rows)
    assert table.count(f"| a\\_b {SEEN_SIGN} ") == 2
    assert SEEN_LEGEND in table
    assert "captions: snli" in table
    assert SEEN_SIGN not in markdown_table({"clean": RECALL})
