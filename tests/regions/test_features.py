"""Features of regions: what they equal, how a run goes on, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.ops import roi_align

from pipeline.datasets.manifest import read_manifest
from pipeline.images import region as module
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.decoding.decode import Decoded
from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.images.recipes import RECIPES, resolve_recipe
from pipeline.images.region import PhotoCache, Region
from pipeline.images.tap import TappedNetwork
from pipeline.images.transforms import read_sample
from pipeline.regions.box_geometry import BOX_GEOMETRY, box_geometry
from pipeline.regions.by_photo import map_recipe
from pipeline.regions.features import Regions, extract_regions
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.proposals import read_proposals
from pipeline.regions.propose import propose
from pipeline.regions.roi_align import aligned_rows
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.shards.feature_set import read_features
from pipeline.studies.scenes.draw_scenes import draw_scenes
from tests.images.networks.narrow import NAME, NARROW
from tests.store.jobs.factories import options

NO_NETWORK: dict[str, dict[str, Any]] = {BOX_GEOMETRY: {"weights": "imagenet", "engine": "fast"}}
POOL, ALIGN = "efficientnet-lite0-pool", "efficientnet-lite0-roi-align"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw three scenes and propose five boxes on each."""
    folder = tmp_path_factory.mktemp("regions")
    draw_scenes(folder / "scenes", 3, 5).write(folder / "scenes")
    propose(folder / "scenes", folder / "grid", proposer=Proposer("grid", 5))
    return folder


def extracted(made: Path, out: Path, recipe: str, **changes: Any) -> dict[str, bytes]:
    defaults: dict[str, Any] = {"weights": "random:0", "threads": 1, "engine": "reference"}
    given = defaults | changes
    regions = Regions(made / "grid", given.pop("context", 0.0))
    extract_regions(made / "scenes", out, regions=regions, recipe=recipe, **options(**given))
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture
def narrow_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, NAME, NARROW)


def test_a_region_is_the_recipe_of_the_cropped_file(made: Path, tmp_path: Path) -> None:
    context = 0.3
    extracted(made, tmp_path / "out", POOL, context=context, batch_size=4)
    features, proposals = read_features(tmp_path / "out"), read_proposals(made / "grid")
    image = proposals.image_ids[1]
    crops = []
    with Image.open(made / "scenes" / "images" / f"{image}.png") as photo:
        for k, (x0, y0, x1, y1) in enumerate(proposals.boxes(image).tolist()):
            across, down = context * (x1 - x0), context * (y1 - y0)
            left, top = max(0, np.floor(x0 - across)), max(0, np.floor(y0 - down))
            right, bottom = min(256, np.ceil(x1 + across)), min(256, np.ceil(y1 + down))
            crops.append(tmp_path / f"{k}.png")
            photo.crop((int(left), int(top), int(right), int(bottom))).save(crops[-1])
    expected = FeatureExtractor(POOL, "random:0", engine="reference", batch_size=4)(crops)
    rows = features.read(proposals.region_ids(image))
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    cut, cropped = (
        read_sample(picture, resolve_recipe(POOL), resolve_recipe(POOL).crop).windows
        for picture in (
            Region(made / "scenes" / "images" / f"{image}.png", (3.5, 2, 40, 50.25)),
            Image.open(made / "scenes" / "images" / f"{image}.png").crop((3, 2, 40, 51)),
        )
    )
    assert cut is not None
    assert cropped is not None
    np.testing.assert_array_equal(cut, cropped)


@pytest.mark.usefixtures("narrow_network")
def test_each_photo_is_decoded_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    real = module.read_image

    def note(path: Path, *rest: Any) -> Decoded:
        read.append(path)
        return real(path, *rest)

    monkeypatch.setattr(module, "read_image", note)
    extracted(made, tmp_path / "out", POOL, batch_size=4, readers=2, threads=2)
    assert len(read) == len(set(read)) == 3


def test_pooling_of_the_map() -> None:
    """Against torchvision, and by hand: a box of whole cells has the mean of a plane's values."""
    y, x, _ = np.mgrid[:6, :8, :1].astype(np.float32)
    grid = torch.from_numpy(np.concatenate([x + 0.5, y + 0.5], axis=2))
    boxes = np.array([[16.0, 32, 48, 64], [0, 0, 128, 96]])
    rows = aligned_rows(grid, boxes, 128, 96)
    np.testing.assert_allclose(rows[0], [2, 3], atol=1e-5)
    maps = grid.permute(2, 0, 1)[None].contiguous()
    expected = roi_align(maps, [torch.tensor(boxes / 16, dtype=torch.float32)], 1, 1.0, 4, True)
    np.testing.assert_array_equal(rows, expected.flatten(1))


def test_the_box_itself_beside_its_features(made: Path, tmp_path: Path) -> None:
    whole, corner = box_geometry(np.array([[0.0, 0, 8, 4], [6, 3, 8, 4]]), 8, 4)
    np.testing.assert_array_equal(whole, [0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(corner, [0.75, 0.75, 1, 1, 0.0625, 1])
    together = f"{ALIGN}+{BOX_GEOMETRY}"
    extracted(made, tmp_path / f"{together}@grid", together)
    parts = [read_features(tmp_path / f"{recipe}@grid") for recipe in (ALIGN, BOX_GEOMETRY)]
    view = read_features(tmp_path / f"{together}@grid")
    rows = [part.read(view.ids) for part in parts]
    scaled = [row / np.linalg.norm(row, axis=1, keepdims=True) for row in rows]
    np.testing.assert_allclose(view.read(view.ids), np.hstack(scaled), atol=1e-6)


@pytest.mark.usefixtures("narrow_network")
def test_a_photo_that_changed_or_went_fails_its_regions(made: Path, tmp_path: Path) -> None:
    draw_scenes(tmp_path / "scenes", 3, 6).write(tmp_path / "scenes")
    propose(tmp_path / "scenes", tmp_path / "grid", proposer=Proposer("grid", 2))
    first, second, third = (e.file for e in read_manifest(tmp_path / "scenes").entries)
    (tmp_path / "scenes" / "images" / first).write_bytes(b"no picture")
    (tmp_path / "scenes" / "images" / second).unlink()
    with Image.open(tmp_path / "scenes" / "images" / third) as photo:
        photo.rotate(90).save(tmp_path / "scenes" / "images" / third)
    for recipe in (POOL, ALIGN, BOX_GEOMETRY):
        extracted(tmp_path, tmp_path / recipe, recipe, **NO_NETWORK.get(recipe, {}))
        failures = read_features(tmp_path / recipe).failures()
        assert [status for _, status, _ in failures] == (
            ["unreadable"] * 2 + ["missing"] * 2 + ["refused"] * 2
        )
        assert "changed since its boxes were proposed" in failures[-1][2]


def test_bad_input(made: Path, tmp_path: Path) -> None:
    def refused(kind: type[PipelineError], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            extracted(made, tmp_path / "out", **({"recipe": POOL} | options))

    refused(WrongUsage, "context is -1", context=-1)
    refused(WrongUsage, f"{ALIGN} cuts none", recipe=ALIGN, context=0.5)
    refused(WrongUsage, "box-geometry has no network", recipe=BOX_GEOMETRY, weights="w.pth")
    refused(PipelineError, "backbone is called 'nothing-grid'", recipe="nothing-roi-align")
    other = draw_scenes(tmp_path / "more", 4, 5)
    other.write(tmp_path / "more")
    with pytest.raises(PipelineError, match=r"lacks 1 of the images, first .*scene-00003"):
        extract_regions(
            tmp_path / "more", tmp_path / "out", regions=Regions(made / "grid"), recipe=POOL
        )


@pytest.mark.parametrize("grid", [name for name in RECIPES if name.endswith("-grid")])
@torch.inference_mode()
def test_maps_have_the_cells_of_their_recipe(grid: str) -> None:
    for recipe in (
        map_recipe(grid.replace("-grid", "-roi-align")), RECIPES[grid],
        *(resolve_recipe(f"{grid}-{size}") for size in (64, 352)),
    ):  # fmt: skip
        net = TappedNetwork(
            BACKBONES[recipe.backbone].outline().eval(), BACKBONES[recipe.backbone], recipe
        )
        crop = torch.empty(1, 3, recipe.crop.size, recipe.crop.size, device="meta")
        assert tuple(net(crop).shape[2:]) == recipe.shape[:2]


def test_threads_share_a_photo_that_fails(tmp_path: Path) -> None:
    photos = PhotoCache()
    region = Region(tmp_path / "gone.png", (0, 0, 1, 1), photos=photos)
    assert [region.read(lambda image: image).reason for _ in range(2)] == ["no such file"] * 2
