"""Captions of picture files by their nearest training captions; one that is none has its error."""

from pathlib import Path

import pytest

from pipeline.heads.inputs.feature_rows import ArrayRows
from pipeline.heads.trained_head import load_head
from pipeline.language.captioning.baselines import NearestCaption
from pipeline.language.captioning.describe import describe_pictures
from pipeline.retrieval.query.query_models import open_network
from pipeline.retrieval.similarity import unit_rows
from tests.retrieval.query.factories import CAPTIONS, ENTRIES, FILES, features, fill


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Two pictures, features of both sides, and the folder `head` of a head fitted on them."""
    fill(tmp_path)
    return tmp_path


def test_pictures_get_their_nearest_captions(made: Path) -> None:
    head = load_head(made / "head")
    images, captions = features(made)
    captioner = NearestCaption(head, ENTRIES, captions)
    (made / "none.png").write_bytes(b"no picture")
    files = [str(made / name) for name in (*FILES, "none.png", "absent.png")]
    described = describe_pictures(captioner, open_network(head, None), files, count=3)
    assert [d.image for d in described] == files
    assert [len(d.captions) for d in described] == [3, 3, 0, 0]
    assert "unreadable" in described[2].error
    assert "missing" in described[3].error
    embedded = head.head.embed_captions(ArrayRows(captions.read(captions.ids)))
    asked = head.head.embed_images(ArrayRows(images.read([ENTRIES[0].id]).astype("float32")))
    scores = (unit_rows(asked) @ unit_rows(embedded).T)[0]
    order = scores.argsort()[::-1][:3]
    assert [c.text for c in described[0].captions] == [CAPTIONS[at] for at in order]
