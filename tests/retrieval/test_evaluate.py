"""The job of `pipeline evaluate`, called as a function."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.measures import COUNTS, METRICS, SMALL_COLUMNS
from pipeline.retrieval.provenance import columns_of
from pipeline.retrieval.ranking.galleries import images_between
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.tables import PROVENANCE_FILE, read_provenance, read_recall
from pipeline.store.errors import UnknownName
from pipeline.store.files import OutputError
from tests.project import Recorder
from tests.retrieval.factories import made


def test_it_writes_what_it_returns_and_says_what_counted(tmp_path: Path) -> None:
    e = made([6, 5, 1], "euclidean")
    write_embeddings(tmp_path / "e.h5", e)
    monitor = Recorder()
    found = evaluate(tmp_path / "e.h5", tmp_path / "out", monitor=monitor)
    assert found.table == read_recall(tmp_path / "out" / "recall.json")
    assert found.table | recall_table(e) == found.table
    assert found.folds == ()
    provenance = read_provenance(tmp_path / "out" / PROVENANCE_FILE)
    assert provenance["similarity"] == "euclidean"
    assert monitor.lines[0].startswith(
        f"{tmp_path / 'out'}: 3 of 3 images and 11 of 12 captions ranked by euclidean in "
    )


@pytest.mark.parametrize("number", [1, 5, None])
@pytest.mark.parametrize("protocol", [None, "first-3"])
def test_how_many_captions_counted_is_recorded(
    protocol: str | None, number: int | None, tmp_path: Path
) -> None:
    e = made([6, 7, 5, 8], "cosine")
    write_embeddings(tmp_path / "e.h5", e)
    out = tmp_path / "out"
    how: dict[str, Any] = {"protocol": protocol, "captions_per_image": number}
    found = evaluate(tmp_path / "e.h5", out, **how)
    assert evaluate(tmp_path / "e.h5", **how) == found
    if protocol is None:
        assert {*found.table} == {*METRICS, *COUNTS, *SMALL_COLUMNS}
        assert found.table == found.table | recall_table(e, number)
    provenance = read_provenance(out / PROVENANCE_FILE)
    asked = provenance if protocol is None else provenance["protocol"]
    assert asked["captions_per_image"] == number
    words = {1: "1 captions an image", 5: "", None: "all captions an image"}[number]
    expected = ", ".join(filter(None, [protocol, words]))
    assert columns_of(provenance).get("protocol", "") == expected


def test_too_many_pairs_are_refused_with_what_they_would_cost(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "e.h5", made([5] * 40, "cosine"))
    with pytest.raises(
        EmbeddingsError, match=r"40 images and 200 captions compare 8\.0e\+03 pairs"
    ):
        evaluate(tmp_path / "e.h5", tmp_path / "out", max_pairs=7999)
    assert not (tmp_path / "out").exists()
    evaluate(tmp_path / "e.h5", tmp_path / "out", max_pairs=8000)
    few = evaluate(tmp_path / "e.h5", tmp_path / "few", protocol="first-10", max_pairs=500)
    assert few.table["num_images"] == 10


def test_protocols_of_5000_images(tmp_path: Path) -> None:
    """5K is one gallery; 1K has five folds of consecutive images, which the provenance has too."""
    e = made([1] * 5000, "cosine")
    write_embeddings(tmp_path / "e.h5", e)
    tables = {}
    for name in ("coco-5k", "coco-1k"):
        found = evaluate(tmp_path / "e.h5", tmp_path / name, protocol=name, captions_per_image=1)
        kept = json.loads((tmp_path / name / PROVENANCE_FILE).read_text())
        assert (kept["protocol"]["name"], kept["folds"]) == (name, list(found.folds))
        tables[name] = found.table
    assert tables["coco-5k"] == tables["coco-5k"] | recall_table(e)
    parts = (slice(start, start + 1000) for start in range(0, 5000, 1000))
    folds = [recall_table(images_between(e, e.image_of_caption, part)) for part in parts]
    for name in METRICS:
        assert tables["coco-1k"][name] == pytest.approx(np.mean([of[name] for of in folds]))
    assert [tables["coco-1k"][name] for name in (*COUNTS, "num_folds")] == [5000, 5000, 1, 5]


def test_one_split_of_a_file_of_several_is_ranked_as_its_own_file(tmp_path: Path) -> None:
    e = made([5, 4, 5, 0, 2, 3], "cosine")
    provenance = {"split": "all", "splits": [["train", 2], ["val", 0], ["test", 4]]}
    write_embeddings(tmp_path / "all.h5", replace(e, provenance=provenance))
    test = images_between(e, e.image_of_caption, slice(2, 6))
    write_embeddings(tmp_path / "test.h5", replace(test, provenance={"split": "test"}))
    monitor = Recorder()
    alone = evaluate(tmp_path / "test.h5", tmp_path / "alone", monitor=monitor)
    part = evaluate(tmp_path / "all.h5", tmp_path / "part", split="test")
    assert part == alone
    assert monitor.lines[0] == "1 images without a caption are in the gallery, but not queries"
    assert part.table["num_images"] == 4
    kept = [read_provenance(tmp_path / out / PROVENANCE_FILE) for out in ("alone", "part")]
    assert kept[0]["provenance"] == kept[1]["provenance"] == {"split": "test"}
    whole = evaluate(tmp_path / "all.h5", tmp_path / "whole", split="all")
    assert whole.table == {**whole.table, **recall_table(e)}
    for split, message in ((None, "and none is named"), ("dev", "and none is 'dev'")):
        with pytest.raises(EmbeddingsError, match=rf"all.h5 holds several .*test: 4.*{message}"):
            evaluate(tmp_path / "all.h5", tmp_path / "none", split=split)
    with pytest.raises(EmbeddingsError, match="holds the split 'test', not 'train'"):
        evaluate(tmp_path / "test.h5", tmp_path / "none", split="train")
    for splits, message in (([["a", 3]], "counts 3 images"), ([["a"]], "invalid at splits")):
        wrong = replace(e, provenance={"split": "all", "splits": splits})
        write_embeddings(tmp_path / "wrong.h5", wrong)
        with pytest.raises(EmbeddingsError, match=message):
            evaluate(tmp_path / "wrong.h5", tmp_path / "none", split="a")


def test_a_file_without_captions_is_read_and_not_ranked(tmp_path: Path) -> None:
    for similarity in ("cosine", "scan-t2i-avg"):
        e = made([0, 0, 0], similarity)
        write_embeddings(tmp_path / "e.h5", e)
        found = read_embeddings(tmp_path / "e.h5")
        assert (len(found.image_ids), len(found.caption_ids)) == (3, 0)
        np.testing.assert_array_equal(found.image_embeddings, e.image_embeddings)
        with pytest.raises(EmbeddingsError, match=r"e.h5 has no captions: nothing to rank"):
            evaluate(tmp_path / "e.h5", tmp_path / "out")


def test_mistakes_end_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        evaluate(tmp_path / "missing.h5", tmp_path / "file" / "out")
    with pytest.raises(UnknownName, match="unknown protocol 'coco'"):
        evaluate(tmp_path / "missing.h5", tmp_path / "out", protocol="coco")
    assert not (tmp_path / "out").exists()
