"""Embedding files that grow: bytes of a file from nothing, and old rows not embedded again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.heads import copied_rows, embedding_source
from pipeline.heads.base import FitOptions
from pipeline.heads.embed import embed_split
from pipeline.heads.embedding_source import EmbeddingSource
from pipeline.heads.head_types import make_head
from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.inputs.feature_spec import HeadInputs
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.store.shards.feature_set import FeatureSet
from tests.heads.factories import (
    COUNTS,
    SEQUENCE,
    all_of,
    entries_of,
    inputs_of_parts,
    trained_head,
    vector_pairs,
    write_features,
)
from tests.project import Recorder

ROWS = 100
PARTS: dict[str, list[dict[str, Any]]] = {
    "vse": [SEQUENCE], "word2visualvec": [COUNTS, SEQUENCE], "ridge": [COUNTS],
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (embedding_source, copied_rows):
        monkeypatch.setattr(module, "CHUNK_ROWS", 64)


def written(folder: Path, made: Pairs, kind: str) -> tuple[FeatureSet, FeatureSet]:
    write_features(folder / "i", made.image_ids, all_of(made.images))
    recipe = inputs_of_parts((8,), *PARTS[kind]).captions.recipe
    write_features(folder / "c", made.caption_ids, all_of(made.captions), recipe=recipe)
    return FeatureSet(folder / "i"), FeatureSet(folder / "c")


def trained(
    folder: Path, sets: tuple[FeatureSet, FeatureSet], kind: str, **how: Any
) -> TrainedHead:
    head = make_head(kind, how, inputs := HeadInputs.of(*sets))
    train = vector_pairs(30, *PARTS[kind])
    history = head.fit(train, train, FitOptions(0))
    made = trained_head(head, history, kind, how, inputs=inputs)
    replace(made, average_captions=kind == "ridge").save(folder / kind)
    return load_head(folder / kind)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("vse", {"dim": 16, "word_dim": 8, "epochs": 1, "batch_size": 20}),
        ("word2visualvec", {"layers": 2, "word_dim": 8, "hidden_size": 9, "epochs": 1}),
        ("ridge", {}),
    ],
)
def test_a_file_grows_to_the_bytes_of_one_from_nothing(
    kind: str, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = vector_pairs(ROWS, *PARTS[kind])
    entries, sets = entries_of(pairs), written(tmp_path / "a", pairs, kind)
    head = trained(tmp_path, sets, kind, **how)
    out, monitor = tmp_path / "e.h5", Recorder()
    embed_split(head, entries[:90], *sets, out, {})
    images = all_of(pairs.images).copy()
    images[33] += 1
    sets = written(tmp_path / "b", replace(pairs, images=ArrayRows(images)), kind)
    grown = [entries[row] for row in np.random.default_rng(0).permutation(np.arange(7, ROWS))]
    computed: list[int] = []
    once = EmbeddingSource.compute

    def counted(self: EmbeddingSource, spans: Any, watch: Any) -> Any:
        computed.append(sum(map(len, spans)))
        return once(self, spans, watch)

    monkeypatch.setattr(EmbeddingSource, "compute", counted)
    embed_split(head, grown, *sets, out, {"dataset": "more"}, monitor=monitor)
    captions = 1 if kind == "ridge" else 3
    # Products of few columns may depend on the place of a row: then all rows are computed.
    if kind != "word2visualvec":
        assert computed == [11, 10 * captions]
    assert "93 images: 82 embeddings kept, 10 new, 1 changed, 7 removed" in monitor.lines
    embed_split(head, grown, *sets, tmp_path / "f.h5", {"dataset": "more"})
    assert out.read_bytes() == (tmp_path / "f.h5").read_bytes()
    # Nothing new, another order; then fewer rows than a block, which are all computed.
    for some, few in ((grown[::-1], False), (grown[:63], True)):
        computed.clear()
        embed_split(head, some, *sets, out, {})
        assert (63 in computed) == few
        if kind != "word2visualvec":
            assert len(computed) == few * (2 if kind == "ridge" else 1)
        embed_split(head, some, *sets, tmp_path / f"{few}.h5", {})
        assert out.read_bytes() == (tmp_path / f"{few}.h5").read_bytes()


def test_rows_are_kept_of_the_same_head_and_arithmetic_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = vector_pairs(ROWS, COUNTS)
    entries, sets = entries_of(pairs), written(tmp_path / "a", pairs, "ridge")
    out, first, monitor = tmp_path / "e.h5", trained(tmp_path, sets, "ridge"), Recorder()
    embed_split(first, entries, *sets, out, {})
    other = trained(tmp_path, sets, "ridge", ridge=1.0)
    embed_split(other, entries, *sets, out, {}, monitor=monitor)
    assert not [line for line in monitor.lines if "kept" in line]
    once = EmbeddingSource.embed_rows
    monkeypatch.setattr(
        EmbeddingSource, "embed_rows", lambda self, rows: np.nextafter(once(self, rows), 9)
    )
    embed_split(other, entries, *sets, out, {}, monitor=monitor)
    assert [line for line in monitor.lines if "differ from those of the earlier" in line]
