"""`pipeline propose`: every method's boxes lie in the photo, and a run stopped goes on alike."""

import base64
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.regions import read_phrases
from pipeline.regions.boxes import areas, iou
from pipeline.regions.methods import true_boxes
from pipeline.regions.opencv_methods import SIDE
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.proposals import read_proposals
from pipeline.regions.propose import propose
from pipeline.store.convert.importers.boxes import read_boxes
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.format import ShardError
from pipeline.studies.scenes.draw_scenes import draw_scenes
from tests.project import SHARED, Recorder, contents

BING = SHARED / "data" / "models" / "bing"
needs_opencv = pytest.mark.skipif(find_spec("cv2") is None, reason="needs the extra regions")


def assert_inside(boxes: np.ndarray, width: int, height: int) -> None:
    assert (areas(boxes) > 0).all()
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= [width, height]).all()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "scenes"
    draw_scenes(folder, 3, 3).write(folder)
    return folder


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("grid", None),
        pytest.param("edge-boxes", None, marks=needs_opencv),
        pytest.param("selective-search", None, marks=needs_opencv),
        pytest.param(
            "bing",
            BING,
            marks=[needs_opencv, pytest.mark.skipif(not BING.is_dir(), reason="needs ../shared")],
        ),
    ],
)
def test_boxes_are_in_the_photo_and_the_same_again(
    scenes: Path,
    tmp_path: Path,
    method: str,
    model: Path | None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    proposer = Proposer(method, 30, model=model)
    index = propose(scenes, tmp_path / "a", proposer=proposer, compute=Compute(threads=2))
    assert (index.rows, index.failed_rows) == (3, 0)
    found = read_proposals(tmp_path / "a")
    for image in found.image_ids:
        boxes, scores = found.boxes(image), found.scores(image)
        assert 0 < len(boxes) <= 30
        assert_inside(boxes, 256, 256)
        assert (np.diff(scores) <= 0).all()
    recall = json.loads((tmp_path / "a" / "recall.json").read_text())
    truth = true_boxes(read_phrases(scenes))
    covered = [
        (iou(found.boxes(p.image), np.array(p.boxes)) >= 0.5).any() for p in read_phrases(scenes)
    ]
    assert recall["recall_at_50"] == round(100 * float(np.mean(covered)), 2)
    assert recall["images"] == len(truth)
    with pytest.raises(KeyboardInterrupt):
        propose(scenes, tmp_path / "b", proposer=proposer, monitor=Recorder(2))
    propose(scenes, tmp_path / "b", proposer=proposer, compute=Compute(threads=1))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert capfd.readouterr().out == ""


@needs_opencv
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (8, 8), (SIDE + 1, 9), (40, 1000)])
def test_odd_photos(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    entry = ImageEntry("a.png", "a.png", "train", ())
    Manifest("odd", tmp_path, (entry,), "", "", {}).write(tmp_path / "odd")
    for method in ("edge-boxes", "selective-search"):
        index = propose(tmp_path / "odd", tmp_path / method, proposer=Proposer(method, 5))
        assert index.failed_rows == (min(size) < 8)
        assert_inside(read_proposals(tmp_path / method).boxes("a.png"), *size)


def test_files_of_others(tmp_path: Path) -> None:
    boxes = np.array([[0, 0, 4, 4], [1, 2, 3, 5]], np.float32)
    arrays: Any = {"in/a.jpg": np.c_[boxes, [0.2, 0.9]]}
    np.savez(tmp_path / "x.npz", **arrays)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["in/a.jpg/boxes"], file["in/a.jpg/scores"] = boxes, [0.2, 0.9]
    results = [
        {"image_id": "in/a.jpg", "bbox": [0, 0, 4, 4], "score": 0.2, "category_id": 1},
        {"image_id": "in/a.jpg", "bbox": [1, 2, 2, 3], "score": 0.9, "category_id": 1},
    ]
    (tmp_path / "x.json").write_text(json.dumps(results))
    encoded = base64.b64encode(boxes[::-1].tobytes())
    (tmp_path / "x.tsv").write_bytes(b"\t".join([b"in/a.jpg", b"9", b"9", b"2", encoded, b""]))
    for suffix in ("npz", "h5", "json", "tsv"):
        found, scores = read_boxes(tmp_path / f"x.{suffix}")["in/a.jpg"]
        np.testing.assert_array_equal(found, boxes[::-1])
        assert suffix == "tsv" or scores.tolist() == pytest.approx([0.9, 0.2])


def test_bad_input(scenes: Path, tmp_path: Path) -> None:
    def refused(kind: type[PipelineError], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            propose(scenes, tmp_path / "out", proposer=Proposer(**options))

    arrays: Any = {"a.jpg": np.array([[0.0, 0, 1, 1]])}
    np.savez(tmp_path / "other.npz", **arrays)
    (tmp_path / "bad.json").write_text('[{"image_id": 1}]')
    (tmp_path / "bad.tsv").write_text("1\t2\n")
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("a.jpg", b"no array")
    with h5py.File(tmp_path / "bad.h5", "w") as table:
        table["a.jpg/boxes"] = h5py.Empty("f4")
    file = {"method": "boxes", "boxes": tmp_path / "other.npz"}
    refused(
        PipelineError,
        "no boxes for the 3 images; its ids are like 'a.jpg', .*'scene-00000'",
        **file,
    )
    refused(
        ShardError, r"\[0\].*missing required field", **(file | {"boxes": tmp_path / "bad.json"})
    )
    for bad in ("bad.npz", "bad.h5"):
        refused(ShardError, "arrays of boxes", **(file | {"boxes": tmp_path / bad}))
    refused(ShardError, "line 1: found 2 columns", **(file | {"boxes": tmp_path / "bad.tsv"}))
    refused(ShardError, "expected boxes as", **(file | {"boxes": tmp_path / "bad.csv"}))
    refused(WrongUsage, "the method boxes requires `boxes=FILE`", method="boxes")
    refused(WrongUsage, "`model=.*` applies to bing", method="grid", model=tmp_path)
    refused(WrongUsage, "at least 1", method="grid", number=0)
    refused(WrongUsage, "method 'x' is unknown; expected one of edge-boxes", method="x")


def test_boxes_outside_their_photo_are_a_failed_row(scenes: Path, tmp_path: Path) -> None:
    first, second = (entry.id for entry in read_manifest(scenes).entries[:2])
    boxes: Any = {first: np.array([[0.0, 0, 257, 9]]), second: np.array([[0.0, 0, 9, 9]])}
    np.savez(tmp_path / "x.npz", **boxes)
    monitor = Recorder()
    index = propose(
        scenes,
        tmp_path / "out",
        proposer=Proposer("boxes", boxes=tmp_path / "x.npz"),
        monitor=monitor,
    )
    assert index.failed_rows == 1
    found = read_proposals(tmp_path / "out")
    assert [found.count(image) for image in found.image_ids] == [0, 1, 0]
    assert any("2 images without" in line for line in monitor.lines)


def test_damaged_archives_of_boxes_are_named(tmp_path: Path) -> None:
    """What a campaign of hostile files found: no bytes, a header that is no Python, and a bomb."""
    path = tmp_path / "x.npz"
    path.write_bytes(b"")
    with pytest.raises(ShardError, match=r"is not a readable \.npz file of boxes"):
        read_boxes(path)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10,"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ShardError, match=r"is not a readable \.npz file of boxes"):
        read_boxes(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes((1 << 26) + 1))
    with pytest.raises(ShardError, match=r"a\.npy unpacks to 67,108,865 bytes"):
        read_boxes(path)
