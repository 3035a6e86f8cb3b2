"""Clips on the page: sheets of frames, ranges for players, and nothing but the dataset's own."""

import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from pipeline.clips.contact_sheet import contact_sheet
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.shown_image import shown_image
from pipeline.retrieval.query.embedded_dataset import Hit
from pipeline.store.shards.format import UNREADABLE
from pipeline.web.report.thumbnails import Thumbnails
from pipeline.web.serve.app import make_app
from pipeline.web.serve.hosts import Hosts
from pipeline.web.serve.service import Answer
from tests.clips.moving import av, number_of, write_clip

EVIL = "<script>alert('a red dog')</script>"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Clips that a browser plays as they are, one that it does not, one of another container."""
    root = tmp_path_factory.mktemp("clips")
    write_clip(root / "h264.mp4", 12, codec="libx264")
    write_clip(root / "old.avi", 12, codec="mpeg4")
    write_clip(root / "h264.avi", 12, codec="libx264")
    write_clip(root / "a.gif", 12, codec="gif")
    (root / "bad.mp4").write_text("no clip")
    (root / "out.mp4").symlink_to("/etc/passwd")
    names = ["h264.mp4", "old.avi", "h264.avi", "a.gif", "bad.mp4", "out.mp4"]
    entries = tuple(ImageEntry(name, name, "test", (EVIL,)) for name in names)
    return Manifest("mine", root, entries, "none", "made", {}, media="clips")


def ask(manifest: Manifest, path: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers and body of one request."""
    ids = [e.id for e in manifest.entries]
    hits = tuple(
        Hit(k, 0.5, e.id, e.id, manifest.image_root / e.file, e.first_caption)
        for k, e in enumerate(manifest.entries, 1)
    )
    service: Any = SimpleNamespace(
        manifest=manifest, image_ids=ids, experiment="e", similarity="cosine", split="test",
        searched="6 clips", composable=False, filterable=False,
        sides=("images", "sentences"), no_uploads="none",
        answer=lambda query: Answer(query, "images", hits, ()),
    )  # fmt: skip
    app = make_app(service, hosts=Hosts(["here"]), log=lambda line: None)
    with TestClient(app, base_url="http://here") as client:
        got = client.get(path, headers=headers)
    return got.status_code, got.headers, got.content


def clip(name: str) -> str:
    return "/clip?" + urlencode({"id": name})


def test_a_sheet_shows_frames_in_order(manifest: Manifest) -> None:
    sheet = contact_sheet(manifest.image_root / "h264.mp4")
    assert sheet.image is not None
    pixels = np.asarray(sheet.image)
    assert pixels.shape == (2 * 32 + 2, 3 * 48 + 4, 3)
    cells = [pixels[y : y + 32, x : x + 48] for y in (0, 34) for x in (0, 50, 100)]
    # In the middle of sixths of 1.2 s.
    assert [number_of(cell, 12) for cell in cells] == [1, 3, 5, 7, 9, 11]
    assert sheet.source_crc32 == zlib.crc32((manifest.image_root / "h264.mp4").read_bytes())
    bad = shown_image(manifest.image_root / "bad.mp4", "clips")
    assert (bad.image, bad.status) == (None, UNREADABLE)


def test_thumbnails_of_a_report_are_sheets(manifest: Manifest, tmp_path: Path) -> None:
    files = {e.id: manifest.image_root / e.file for e in manifest.entries}
    dataset: Any = SimpleNamespace(manifest=manifest, files=files)
    thumbnails = Thumbnails(tmp_path)
    name = thumbnails.of(dataset, "h264.mp4").name
    with Image.open(tmp_path / name) as copy:
        assert copy.size == (148, 66)
    with Image.open(io.BytesIO(thumbnails.tiny(dataset, "h264.mp4"))) as copy:
        assert copy.size == (76, 76)
    assert "not a clip" in thumbnails.of(dataset, "bad.mp4").reason


def test_a_clip_is_sent_whole_and_in_ranges(manifest: Manifest) -> None:
    whole = (manifest.image_root / "h264.mp4").read_bytes()
    status, headers, body = ask(manifest, clip("h264.mp4"))
    assert (status, headers["content-type"], body) == (200, "video/mp4", whole)
    assert "media-src 'self'" in headers["content-security-policy"]
    status, headers, body = ask(manifest, clip("h264.mp4"), range="bytes=10-19")
    assert (status, body) == (206, whole[10:20])
    assert headers["content-range"] == f"bytes 10-19/{len(whole)}"


def test_other_containers_are_rewritten_and_other_codecs_refused(manifest: Manifest) -> None:
    status, headers, body = ask(manifest, clip("h264.avi"))
    assert (status, headers["content-type"]) == (200, "video/mp4")
    with av.open(io.BytesIO(body)) as container:
        frames = [number_of(f.to_ndarray(format="rgb24"), 12) for f in container.decode(video=0)]
    assert frames == list(range(12))
    assert ask(manifest, clip("a.gif"))[1]["content-type"] == "image/gif"
    for name, refused in (("old.avi", 415), ("bad.mp4", 415), ("out.mp4", 415), ("../x", 404)):
        assert ask(manifest, clip(name))[0] == refused, name


def test_the_page_plays_what_can_be_played(manifest: Manifest) -> None:
    _, _, body = ask(manifest, "/?q=dog")
    text = body.decode()
    assert text.count("<video") == 2
    assert 'src="/clip?id=h264.avi" poster="/image?id=h264.avi"' in text
    assert '<img src="/clip?id=a.gif"' in text
    assert '<img src="/image?id=old.avi"' in text
    assert EVIL not in text
    assert "Nearest clips" in text


def test_small_copies_are_sheets(manifest: Manifest) -> None:
    _, headers, body = ask(manifest, "/image?id=h264.mp4")
    assert headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(body)) as copy:
        assert copy.size == (148, 66)
    assert ask(manifest, "/image?id=bad.mp4")[0] == 415
