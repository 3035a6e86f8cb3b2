"""The job of `pipeline evaluate`, called as a function."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.files import OutputError
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.evaluate import TooManyPairs, evaluate
from pipeline.retrieval.ranking.protocols import ProtocolError
from pipeline.retrieval.recall import recall_table
from pipeline.retrieval.tables import PROVENANCE_FILE, read_provenance, read_recall
from tests.project import Recorder
from tests.retrieval.factories import made


def test_it_writes_what_it_returns_and_says_what_counted(tmp_path: Path) -> None:
    e = made([6, 5, 1], "euclidean")
    write_embeddings(tmp_path / "e.h5", e)
    monitor = Recorder()
    found = evaluate(tmp_path / "e.h5", tmp_path / "out", monitor=monitor)
    assert found.table == recall_table(e) == read_recall(tmp_path / "out" / "recall.json")
    assert (found.folds, found.method) == ((), {})
    provenance = read_provenance(tmp_path / "out" / PROVENANCE_FILE)
    assert provenance["similarity"] == "euclidean"
    assert monitor.lines[0].startswith(
        f"{tmp_path / 'out'}: 3 of 3 images and 11 of 12 captions ranked by euclidean in "
    )
    everything = evaluate(str(tmp_path / "e.h5"), str(tmp_path / "all"), captions_per_image=None)
    assert everything.table["num_captions"] == 12


def test_too_many_pairs_are_refused_with_what_they_would_cost(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "e.h5", made([5] * 40, "cosine"))
    with pytest.raises(TooManyPairs, match=r"40 images and 200 captions compare 8\.0e\+03 pairs"):
        evaluate(tmp_path / "e.h5", tmp_path / "out", max_pairs=7999)
    assert not (tmp_path / "out").exists()
    evaluate(tmp_path / "e.h5", tmp_path / "out", max_pairs=8000)
    few = evaluate(tmp_path / "e.h5", tmp_path / "few", protocol="first-10", max_pairs=500)
    assert few.table["num_images"] == 10


def test_a_protocol_adds_its_folds_to_the_provenance(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "e.h5", made([5] * 5000, "cosine"))
    found = evaluate(tmp_path / "e.h5", tmp_path / "out", protocol="coco-1k")
    assert found.table["num_folds"] == len(found.folds) == 5
    kept = json.loads((tmp_path / "out" / PROVENANCE_FILE).read_text())
    assert kept["folds"] == list(found.folds)
    assert kept["protocol"]["name"] == "coco-1k"
    mean = np.mean([fold["rsum"] for fold in found.folds])
    assert found.table["rsum"] == pytest.approx(mean)


def test_mistakes_end_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        evaluate(tmp_path / "missing.h5", tmp_path / "file" / "out")
    with pytest.raises(ProtocolError, match="'coco' is not known"):
        evaluate(tmp_path / "missing.h5", tmp_path / "out", protocol="coco")
    assert not (tmp_path / "out").exists()
