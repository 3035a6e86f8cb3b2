"""Images by the cosine of their features: against plain numpy, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query import similar_images
from pipeline.retrieval.query.similar_images import FeatureSearcher
from pipeline.store.builder.arrays import write_features
from pipeline.store.errors import WrongUsage
from pipeline.store.shards.format import UNREADABLE
from tests.retrieval.query.factories import FILES


def test_the_hits_are_those_of_all_cosines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(23, 2, 3, 5)).astype(np.float32)
    rows[7] = rows[3]
    ids = [f"{number:02d}" for number in range(23)]
    write_features(tmp_path / "grid", ids, rows, recipe={"name": "other"})
    # Blocks of two rows, of which each is 120 bytes.
    monkeypatch.setattr(similar_images, "_BLOCK_BYTES", 240)
    found = FeatureSearcher(tmp_path / "grid").by_image("05", top=30)
    vectors = rows.reshape(23, 6, 5).mean(axis=1).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors[5]
    order = [row for row in np.lexsort((np.arange(23), -cosines.round(6))) if row != 5]
    assert [hit.id for hit in found] == [ids[row] for row in order]
    assert [hit.rank for hit in found] == list(range(1, 23))
    np.testing.assert_allclose([hit.score for hit in found], cosines[order], atol=1e-6)


def test_a_file_finds_itself_and_an_id_the_others(made: Path) -> None:
    searcher = FeatureSearcher(made / "images")
    with Image.open(made / FILES[1]) as image:
        image.load()
    for picture in (str(made / FILES[1]), made / FILES[1], image):
        hits = searcher.by_image(picture)
        assert [hit.id for hit in hits] == ["p1", "p0"]
        assert hits[0].score == pytest.approx(1, abs=1e-3)
    assert [hit.id for hit in searcher.by_image("p1")] == ["p0"]


def test_what_cannot_be_asked_is_refused(made: Path, tmp_path: Path) -> None:
    searcher = FeatureSearcher(made / "images")
    with pytest.raises(WrongUsage, match="below 1"):
        searcher.by_image("p1", top=0)
    with pytest.raises(EmbeddingsError, match=r"'p2' is neither an id of .* nor a file"):
        searcher.by_image("p2")
    recipe = {"name": "other"}
    write_features(tmp_path / "other", ["a"], np.ones((1, 4), np.float32), recipe=recipe)
    other = FeatureSearcher(tmp_path / "other")
    with pytest.raises(EmbeddingsError, match="uses 'other', features that no recipe"):
        other.by_image(made / FILES[0])
    empty = np.full((1, 4), np.nan, np.float32)
    write_features(
        tmp_path / "none", ["a"], empty, recipe=recipe, status=[UNREADABLE], errors=["damaged"]
    )
    with pytest.raises(EmbeddingsError, match="none of the 1 rows has features"):
        FeatureSearcher(tmp_path / "none")
