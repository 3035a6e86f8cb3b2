"""The page of near-duplicates: pictures, escaped texts, and what it leaves out."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.plain_images import plain_images
from pipeline.studies.near_duplicates.find import Duplicate, DuplicateGroup, Duplicates
from pipeline.web.pages import near_duplicates as page_module
from pipeline.web.pages.near_duplicates import write_page

HOSTILE = "<script>alert(1)</script>\u202e & more.jpg"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three photos, one of which has a hostile name, and a file that is no image."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(("a.jpg", "b.jpg", "c.jpg")):
        noise = np.random.default_rng(number).integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(noise).save(folder / name)
    (folder / "damaged.jpg").write_bytes(b"no image")
    return folder


def group_of(*ids: str, score: float = 0.95, folder: Path = Path("features")) -> DuplicateGroup:
    return DuplicateGroup(tuple(Duplicate(i, folder, "test", ids[0], score) for i in ids))


def test_the_page_has_the_pictures_and_escapes_texts(photos: Path, tmp_path: Path) -> None:
    groups = (group_of("a.jpg", "b.jpg"), group_of(HOSTILE, "damaged.jpg", score=0.9))
    found = Duplicates(groups, 0.9, 10, 2, 0.98)
    manifest = plain_images([photos], lambda line: None)
    for name in ("page.html", "again.html"):
        write_page(found, tmp_path / "new" / name, {Path("features"): manifest})
    text = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert text == (tmp_path / "new" / "again.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    assert [base64.b64decode(picture)[:2] for picture in pictures] == [b"\xff\xd8"] * 2
    assert "<script" not in text
    assert "\u202e" not in text
    assert r"&lt;script&gt;alert(1)&lt;/<wbr>script&gt;\u202e &amp; more.jpg" in text
    for words in ("2 groups", "4 of 10 images", "2 images without features", "98.0 %",
                  "not in a specified dataset", "0.9500", "default-src 'none'"):  # fmt: skip
        assert words in text
    assert text.count("no image:") == 2


def test_large_results_are_shortened_and_the_rest_is_counted(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "PICTURES", 5)
    monkeypatch.setattr(page_module, "PICTURES_OF_GROUP", 3)
    groups = (group_of("a.jpg", "b.jpg", "c.jpg", "d.jpg"), *(group_of("a.jpg", "b.jpg"),) * 3)
    found = Duplicates(groups, 0.9, 10, 0)
    write_page(found, tmp_path / "page.html", {})
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "1 more images of this group are not shown" in text
    assert "2 more groups are not shown" in text
    assert text.count('<section class="group') == 2
