"""The drawn scenes' phrases, their boxes as proposals, and what reads them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.regions import has_phrases, read_phrases
from pipeline.regions import RegionError
from pipeline.regions.methods import true_boxes, true_regions
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.proposals import image_of_region, read_proposals
from pipeline.regions.propose import propose
from pipeline.store.jobs.options import Compute
from pipeline.studies.scenes.draw_scenes import draw_scenes


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "scenes"
    draw_scenes(folder, 24, 3).write(folder)
    return folder


def test_phrases_of_scenes_are_in_their_captions_and_their_boxes_around_paint(scenes: Path) -> None:
    manifest, phrases = read_manifest(scenes), read_phrases(scenes)
    captions = dict(zip(manifest.captions().ids, manifest.captions().texts, strict=True))
    assert has_phrases(scenes)
    assert {p.image for p in phrases} == {e.id for e in manifest.entries}
    for phrase in phrases:
        assert phrase.caption is not None
        assert phrase.phrase in captions[phrase.caption].lower()
        with Image.open(scenes / "images" / f"{phrase.image}.png") as image:
            assert image.size == phrase.size
    assert len(read_phrases(scenes, "val")) < len(phrases)
    with pytest.raises(DatasetError, match="no split 'dev'"):
        read_phrases(scenes, "dev")


def test_true_boxes_are_proposals(scenes: Path, tmp_path: Path) -> None:
    phrases = read_phrases(scenes)
    index = propose(scenes, tmp_path / "truth", proposer=Proposer("ground-truth"))
    assert (index.rows, index.failed_rows) == (24, 0)
    found = read_proposals(tmp_path / "truth")
    boxes, numbers = true_boxes(phrases), true_regions(phrases)
    assert len(found) == sum(map(len, boxes.values()))
    for phrase in phrases:
        rows = found.boxes(phrase.image)[numbers[phrase.id]]
        np.testing.assert_array_equal(rows, phrase.boxes)
    image = phrases[0].image
    assert found.region_ids(image) == [f"{image}@{k}" for k in range(len(boxes[image]))]
    assert image_of_region(f"{image}@1") == (image, 1)
    with pytest.raises(RegionError, match="is not the id of a region"):
        image_of_region(f"{image}@{'9' * 5000}")
    found.require_images(read_manifest(scenes), [image])
    with pytest.raises(RegionError, match="lacks 1 of the images, first"):
        found.require_images(read_manifest(scenes), [image, "scene-99999"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "truth").iterdir()}
    propose(
        scenes, tmp_path / "again", proposer=Proposer("ground-truth"), compute=Compute(threads=1)
    )
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_regions_changed_by_hand_are_refused(scenes: Path, tmp_path: Path) -> None:
    manifest = draw_scenes(tmp_path, 3, 0)
    manifest.write(tmp_path)
    with (tmp_path / "regions.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(DatasetError, match="does not match"):
        read_phrases(tmp_path)
