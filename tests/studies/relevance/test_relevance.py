"""Figures of judged rankings against their definitions, and against the programs of others."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.measures import DIRECTIONS
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.search import Hits, nearest
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.studies import StudyError
from pipeline.studies.relevance import figures
from pipeline.studies.relevance.evaluate_relevance import judged_by
from pipeline.studies.relevance.figures import relevance_figures
from pipeline.studies.relevance.relevance_file import (
    read_relevance,
    rows_of,
)
from stages.evaluate import evaluate as command
from tests.project import Recorder
from tests.retrieval.factories import made

Grades = dict[str, dict[str, float]]


def scores_of(e: Embeddings, direction: str) -> dict[str, dict[str, float]]:
    """Return the similarity of every query with every item."""
    named = SIMILARITIES[e.similarity]
    matrix = named.between(named.prepare(e.image_embeddings), named.prepare(e.caption_embeddings))
    matrix = matrix.astype(np.float32)
    asking, asked = e.image_ids, e.caption_ids
    if direction == DIRECTIONS[1]:
        matrix, asking, asked = matrix.T, asked, asking
    rows = zip(asking, matrix.tolist(), strict=True)
    return {query: dict(zip(asked, row, strict=True)) for query, row in rows}


def ranked(e: Embeddings, direction: str) -> dict[str, list[str]]:
    """Return the items of every query, best first, ties by id."""
    return {
        query: [item for _, item in sorted((-score, item) for item, score in items.items())]
        for query, items in scores_of(e, direction).items()
    }


def drawn(e: Embeddings, direction: str, seed: int, unknown: bool = True) -> Grades:
    """Draw graded judgments, some of them 0, some of items that the gallery does not have."""
    rng = np.random.default_rng(seed)
    asking, asked = e.image_ids, e.caption_ids
    if direction == DIRECTIONS[1]:
        asking, asked = asked, asking
    grades: Grades = defaultdict(dict)
    for query in rng.choice(asking, len(asking) // 2, replace=False).tolist():
        items = rng.choice(asked, rng.integers(1, min(30, len(asked))), replace=False)
        for item in [*items.tolist(), *["not/here"] * unknown]:
            grades[query][item] = float(rng.integers(0, 4))
        grades[query][items.tolist()[0]] = 1.0
    return grades


def expected_figures(ranking: dict[str, list[str]], grades: Grades) -> dict[str, float]:
    """Return the figures by their definitions, one query after the other."""
    sums: dict[str, float] = defaultdict(float)
    for query, of in grades.items():
        order, relevant = ranking[query], {item for item in of if of[item] > 0}
        size = len(relevant)
        for k in (1, 5, 10):
            sums[f"r{k}"] += any(item in relevant for item in order[:k])
            gains = [of.get(item, 0.0) for item in order[:k]]
            best = sorted(of.values(), reverse=True)[:k]
            dcg, ideal = (sum(g / np.log2(n + 2) for n, g in enumerate(x)) for x in (gains, best))
            sums[f"ndcg_{k}"] += dcg / ideal
        precision = [
            sum(item in relevant for item in order[:r]) / r if order[r - 1] in relevant else 0.0
            for r in range(1, min(size, len(order)) + 1)
        ]
        sums["map_at_r"] += sum(precision) / size
        sums["r_precision"] += sum(item in relevant for item in order[:size]) / size
    return {name: 100 * total / len(grades) for name, total in sums.items()}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("similarity", "integers", "counts"),
    [("cosine", False, [5] * 40), ("dot", True, [3, 0, 7, 1] * 8), ("order", False, [2] * 6)],
)
def test_figures_are_those_of_their_definitions(
    similarity: str, integers: bool, counts: list[int], direction: str
) -> None:
    e = made(counts, similarity, integers=integers)
    grades = drawn(e, direction, 3)
    judged = rows_of(grades, e)
    assert (judged.direction, judged.unknown) == (direction, 0)
    found = relevance_figures(e, judged)
    expected = expected_figures(ranked(e, direction), grades)
    assert found.pop("num_queries") == len(grades)
    relevant = sum(grade > 0 for of in grades.values() for grade in of.values())
    assert found.pop("relevant_per_query") == pytest.approx(relevant / len(grades))
    assert found == pytest.approx(expected, abs=1e-10)


def test_queries_are_searched_in_blocks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    e = made([5] * 40, "cosine")
    judged = rows_of(drawn(e, DIRECTIONS[0], 3), e)
    expected = relevance_figures(e, judged)
    sizes = []

    def searched(*given: Any) -> Hits:
        hits = nearest(*given)
        sizes.append(hits.rows.size)
        return hits

    monkeypatch.setattr(figures, "nearest", searched)
    monkeypatch.setattr(figures, "_HITS_AT_ONCE", 100)
    assert relevance_figures(e, judged) == pytest.approx(expected, abs=1e-10)
    assert max(sizes) <= 100
    assert len(sizes) > 3


def test_the_figures_are_those_of_ir_measures() -> None:
    """Compare with trec_eval's programs, as ir_measures calls them."""
    measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    e = made([5] * 60, "cosine", seed=1)
    for direction in DIRECTIONS:
        grades = drawn(e, direction, 5)
        qrels = [
            measures.Qrel(query, item, int(grade))
            for query, of in grades.items()
            for item, grade in of.items()
        ]
        run = [
            measures.ScoredDoc(query, item, float(-place))
            for query, items in ranked(e, direction).items()
            for place, item in enumerate(items)
        ]
        names = {
            "r_precision": measures.Rprec,
            **{f"r{k}": measures.Success @ k for k in (1, 5, 10)},
            **{f"ndcg_{k}": measures.nDCG @ k for k in (1, 5, 10)},
        }
        theirs = measures.calc_aggregate([*names.values()], qrels, run)
        ours = relevance_figures(e, rows_of(grades, e))
        for name, measure in names.items():
            assert ours[name] == pytest.approx(100 * theirs[measure], abs=1e-9), name


@pytest.mark.filterwarnings("ignore:failed to import `ujson`")
def test_the_figures_are_those_of_eccv_caption_on_its_own_judgments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eccv = pytest.importorskip("eccv_caption", reason="eccv_caption is not installed")
    data = Path(eccv.__file__).parent / "data"
    captions_of = json.loads((data / "original_image_to_caption.json").read_text())
    rng = np.random.default_rng(0)
    owners = [image for image, captions in captions_of.items() for _ in captions]
    images = rng.standard_normal((len(captions_of), 6)).astype(np.float32)
    captions = np.repeat(images, 5, axis=0) + rng.standard_normal((len(owners), 6))
    ids = [str(caption) for of in captions_of.values() for caption in of]
    e = Embeddings(
        [*captions_of], images, ids, owners, captions.astype(np.float32), "euclidean", {}
    )
    squares = [(rows.astype(np.float64) ** 2).sum(1) for rows in (images, e.caption_embeddings)]
    for name, key, queries in (("image_to_caption", "i2t", 150), ("caption_to_image", "t2i", 300)):
        of = json.loads((data / f"eccv_{name}.json").read_text())
        of = dict(list(of.items())[:queries])
        (tmp_path / f"{key}.json").write_text(json.dumps(of))
        judged = rows_of(read_relevance(tmp_path / f"{key}.json"), e)
        ours = relevance_figures(e, judged)
        retrieved = {}
        for query in of:
            side = 0 if key == "i2t" else 1
            row = (e.image_ids, e.caption_ids)[side].index(query)
            point, others = (images, e.caption_embeddings)[:: 1 - 2 * side]
            near = np.argsort(squares[1 - side] - 2 * others @ point[row].astype(np.float64))[:200]
            retrieved[int(query)] = [int((ids, e.image_ids)[side][at]) for at in near]
        metrics = eccv.Metrics()
        metrics.eccv_gts = {key: {int(query): items for query, items in of.items()}}
        theirs = metrics.eccv_metrics({key: retrieved}, key)
        for measure in ("map_at_r", "rprecision", "r1"):
            own = ours[measure.replace("rp", "r_p")]
            assert own == pytest.approx(100 * theirs[f"eccv_{measure}"][key], abs=1e-10)
        for k in (5, 10):
            recall = metrics.eccv_recalls({key: retrieved}, key, K=k)[key]
            assert ours[f"r{k}"] == pytest.approx(100 * recall, abs=1e-10)
    capsys.readouterr()  # their bars


def test_recall_is_that_of_clip_benchmark() -> None:
    name = "clip_benchmark.metrics.zeroshot_retrieval"
    theirs = pytest.importorskip(name, reason="clip_benchmark is not installed")
    import torch

    e = made([5] * 200, "cosine")
    matrix = scores_of(e, DIRECTIONS[1])
    scores = torch.tensor([list(row.values()) for row in matrix.values()])
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(scores)), torch.tensor(e.image_of_caption)] = True
    table = recall_table(e)
    for k in (1, 5, 10):
        for direction, pair in zip(
            DIRECTIONS, ((scores.T, positive.T), (scores, positive)), strict=True
        ):
            found = theirs.batchify(theirs.recall_at_k, *pair, 64, "cpu", k=k) > 0
            assert table[f"{direction}_r{k}"] == pytest.approx(
                100 * found.double().mean().item(), abs=1e-9
            )


def test_the_own_captions_as_judgments_give_recall(tmp_path: Path) -> None:
    e = made([6, 5, 1, 5, 3] * 5, "cosine")
    write_embeddings(tmp_path / "e.h5", e)
    own: dict[str, list[str]] = defaultdict(list)
    for caption, image in zip(e.caption_ids, e.caption_image_ids, strict=True):
        own[image].append(caption)
    (tmp_path / "i2t.json").write_text(json.dumps(own))
    lines = [
        {"query": caption, "item": image}
        for caption, image in zip(e.caption_ids, e.caption_image_ids, strict=True)
    ]
    lines.append({"query": "no such caption", "item": "im0"})
    (tmp_path / "t2i.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [tmp_path / "i2t.json", tmp_path / "t2i.jsonl"]
    monitor = Recorder()
    found = evaluate(
        tmp_path / "e.h5",
        tmp_path / "out",
        captions_per_image=None,
        relevance=judged_by(files),
        monitor=monitor,
    )
    assert [*found.relevance] == ["i2t", "t2i"]
    for direction, table in zip(DIRECTIONS, found.relevance.values(), strict=True):
        assert table["direction"] == direction
        for k in (1, 5, 10):
            assert table[f"r{k}"] == pytest.approx(found.table[f"{direction}_r{k}"])
    stored = json.loads((tmp_path / "out" / "relevance.json").read_text())
    assert stored["judgments"] == found.relevance
    assert any("1 of 101 judged pairs are ignored" in line for line in monitor.lines)
    # An evaluation without judgments removes those of the table that it replaces.
    evaluate(tmp_path / "e.h5", tmp_path / "out", captions_per_image=None)
    assert not (tmp_path / "out" / "relevance.json").exists()
    # The sixth caption of an image does not count by default, and is then not found.
    few = evaluate(tmp_path / "e.h5", tmp_path / "few", relevance=judged_by(files)).relevance["i2t"]
    assert few["relevant_per_query"] == 4.0
    with pytest.raises(EmbeddingsError, match="several galleries"):
        evaluate(tmp_path / "e.h5", tmp_path / "no", protocol="coco-1k", relevance=judged_by(files))
    shown = CliRunner().invoke(
        command,
        [str(tmp_path / "e.h5"), "--out", str(tmp_path / "cli"), "--relevance", str(files[0])],
    )
    assert shown.exit_code == 0, shown.output
    assert "| e | i2t | image_to_text | 25 |" in shown.output


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("x.jsonl", '{"query": "a", "item": "b", "grade": -1}\n', "grade -1.0; expected 0"),
        ("x.jsonl", '{"query": "a"}\n', "line 1.*item"),
        ("x.json", '{"a": {"b": 1}, "c": 2}', "expected lines with query"),
        ("x.json", '{"a": ["b"]}', "0 of 1 judged pairs"),
        ("x.json", '{"im0": []}', "has no judged pair"),
        ("x.jsonl", "", "has no judged pair"),
        ("x.jsonl", '{"query": 1, "item": 2}\n{"query": "1", "item": "2", "grade": 3}', "1.0 and"),
        ("x.json", '{"im0": {"im1#0": 0}}', "no judged item has a grade above 0"),
    ],
)
def test_damaged_judgments_are_named(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    write_embeddings(tmp_path / "e.h5", made([2, 2], "cosine"))
    with pytest.raises(StudyError, match=fault):
        evaluate(tmp_path / "e.h5", tmp_path / "out", relevance=judged_by(tmp_path / name))
    assert not (tmp_path / "out" / "recall.json").exists()


def test_the_direction_must_be_clear() -> None:
    e = made([1, 1], "cosine")
    e = Embeddings(("1", "2"), e.image_embeddings, ("1", "2"), ("1", "2"), e.caption_embeddings,
                   "cosine", {})  # fmt: skip
    with pytest.raises(StudyError, match="as many a caption and an image"):
        rows_of({"1": {"2": 1.0}}, e)
