"""Scenes: laid out and painted as they say, the same bytes from the same seed, safe to redo."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import DATASET_FILE, MANIFEST_FILE, read_manifest
from pipeline.studies.scenes.draw_scenes import draw_scenes
from pipeline.studies.scenes.painter import paint
from pipeline.studies.scenes.sample import sample_scene
from pipeline.studies.scenes.world import (
    COLOURS,
    SETTINGS,
    SHAPES,
    SIZE,
    TEXTURES,
    Arrangement,
)


def test_scenes_keep_their_promises() -> None:
    seen: set[str] = set()
    for index in range(600):
        scene = sample_scene(np.random.Generator(np.random.PCG64((1, index))))
        first, *others = scene.groups
        seen |= {scene.setting, *(t for g in scene.groups for t in (g.shape, g.colour, g.texture))}
        assert len({g.shape for g in scene.groups}) == len({g.colour for g in scene.groups})
        assert len({g.shape for g in scene.groups}) == len(scene.groups)
        for group in scene.groups:
            assert 1 <= group.count <= 4
            assert min(group.box) >= 0
            assert max(group.box) <= SIZE
        if scene.arrangement in (
            Arrangement.SIDE_BY_SIDE,
            Arrangement.STACKED,
            Arrangement.BETWEEN,
        ):
            across = scene.arrangement is Arrangement.SIDE_BY_SIDE or scene.position == "row"
            axis = 0 if across else 1
            assert all(a.box[axis + 2] < b.box[axis] for a, b in pairwise(scene.groups))
        if scene.arrangement is Arrangement.INSIDE:
            (outer,), (left, top, right, bottom) = first.centres, others[0].box
            corners = [(left, top), (right, top), (left, bottom), (right, bottom)]
            assert all(math.dist(outer, corner) < first.radius for corner in corners)
    assert seen >= {*SETTINGS, *SHAPES, *COLOURS, *TEXTURES}


def test_objects_are_painted_where_the_scene_says() -> None:
    checked = 0
    for index in range(150):
        rng = np.random.Generator(np.random.PCG64((2, index)))
        scene = sample_scene(rng)
        pixels = np.asarray(paint(scene, rng)[0], dtype=np.int64)
        for group in scene.groups:
            if group.texture != "plain" or scene.arrangement is Arrangement.INSIDE:
                continue
            near = np.abs(pixels - COLOURS[group.colour]).max(axis=2) <= 2
            ys, xs = np.nonzero(near)
            left, top, right, bottom = group.box
            found = (xs >= left) & (xs < right) & (ys >= top) & (ys < bottom)
            area = group.count * np.pi * group.radius**2
            assert found.sum() > 0.1 * area, (index, group)
            if scene.setting not in ("white", "black", "sky", "field", "snow", "night"):
                # Nothing of this colour lies elsewhere: edges and other groups have others.
                assert (~found).sum() < 0.1 * found.sum(), (index, group)
            checked += 1
    assert checked > 40


def test_same_seed_same_bytes_and_prefix(tmp_path: Path) -> None:
    first, again, fewer, other = (tmp_path / n for n in ("first", "again", "fewer", "other"))
    for folder, number, seed in ((first, 13, 3), (again, 13, 3), (fewer, 7, 3), (other, 7, 4)):
        draw_scenes(folder, number, seed).write(folder)
    for path in sorted(p for p in first.rglob("*") if p.is_file()):
        assert path.read_bytes() == (again / path.relative_to(first)).read_bytes()
    a, b, c = (read_manifest(f) for f in (first, fewer, other))
    assert a.entries[:7] == b.entries
    assert [e.captions for e in b.entries] != [e.captions for e in c.entries]
    for entry in b.entries:
        data = (fewer / "images" / entry.file).read_bytes()
        assert data == (first / "images" / entry.file).read_bytes()
        with Image.open(fewer / "images" / entry.file) as image:
            assert (image.size, image.mode, image.info) == ((SIZE, SIZE), "RGB", {})


def test_a_smaller_run_replaces_a_larger_one(tmp_path: Path) -> None:
    draw_scenes(tmp_path, 8, 0).write(tmp_path)
    (tmp_path / "images" / "scene-00000.png.0123456789ab.part").touch()
    (tmp_path / "images" / "mine.png").touch()
    draw_scenes(tmp_path, 5, 0).write(tmp_path)
    kept = sorted(p.name for p in (tmp_path / "images").iterdir())
    assert kept == ["mine.png", *(f"scene-0000{i}.png" for i in range(5))]
    assert len(read_manifest(tmp_path).entries) == 5


def test_an_interrupted_run_is_no_dataset(tmp_path: Path) -> None:
    draw_scenes(tmp_path, 4, 0).write(tmp_path)

    def stop(done: int, total: int, failed: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw_scenes(tmp_path, 4, 1, stop)
    assert (tmp_path / MANIFEST_FILE).exists()
    assert not (tmp_path / DATASET_FILE).exists()


@pytest.mark.parametrize(
    ("number", "counts"),
    [
        (3, {"train": 1, "val": 1, "test": 1}),
        (4, {"train": 2, "val": 1, "test": 1}),
        (12, {"train": 8, "val": 2, "test": 2}),
    ],
)
def test_splits(tmp_path: Path, number: int, counts: dict[str, int]) -> None:
    assert draw_scenes(tmp_path, number, 0).counts == counts


@pytest.mark.parametrize(("number", "seed"), [(2, 0), (0, 0), (100_001, 0), (3, -1)])
def test_numbers_out_of_range(tmp_path: Path, number: int, seed: int) -> None:
    with pytest.raises(DatasetError, match=str(seed if seed < 0 else number)):
        draw_scenes(tmp_path / "out", number, seed)
    assert not (tmp_path / "out").exists()
