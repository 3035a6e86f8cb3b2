"""Clips to shards: the command's job with real networks, tiny clips, and all ways to be cut off."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.clips.c3d import C3D
from pipeline.clips.clip_batches import View
from pipeline.clips.clip_file import open_clip
from pipeline.clips.extract_clips import extract_clips
from pipeline.clips.frames import DECODING, sampled_frames
from pipeline.clips.recipes import VOLUMES, ClipRecipe
from pipeline.clips.sampling import Sampling
from pipeline.clips.volumes import VOLUME_BACKBONES, VolumeNetwork, load_volume_weights
from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.images.networks import WeightsError
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.shards.feature_set import FeatureSet
from tests.clips.moving import write_clip
from tests.project import Recorder

LITE = "efficientnet-lite0-pool@even:3"


def dataset_of(folder: Path, names: Sequence[str], media: Any = "clips") -> Path:
    entries = tuple(ImageEntry(name, name, "train", ("a b",)) for name in names)
    Manifest("mine", folder / "clips", entries, "none", "made", {}, media=media).write(folder)
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for k in range(4):
        write_clip(tmp_path / f"clips/{k}.mp4", 4 + k, size=(48 + 16 * k, 32))
    (tmp_path / "clips/bad.mp4").write_text("no clip")
    return dataset_of(tmp_path, ["0.mp4", "1.mp4", "bad.mp4", "2.mp4", "3.mp4"])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_row_is_the_mean_of_the_rows_of_its_frames(dataset: Path, tmp_path: Path) -> None:
    """Each of the frames saved as a picture and put through the image recipe.

    The run was cut off in between, so that batches have other frames than without.
    """
    with pytest.raises(KeyboardInterrupt):
        extract_clips(dataset, tmp_path / "out", recipe=LITE, monitor=Recorder(2))
    index = extract_clips(dataset, tmp_path / "out", recipe=LITE)
    extract_clips(dataset, tmp_path / "whole", recipe=LITE)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert (index.rows, index.failed_rows) == (5, 1)
    found = FeatureSet(tmp_path / "out")
    assert found.failures()[0][0] == "bad.mp4"
    assert index.header.recipe["clip"] == {
        "decode": DECODING, "frames": "even:3", "over_frames": "mean",
    }  # fmt: skip
    with open_clip(tmp_path / "clips/3.mp4", []) as clip:
        images = [frame.image for frame in sampled_frames(clip, [Sampling("even:3")])]
    for k, image in enumerate(images):
        image.save(tmp_path / f"{k}.png")
    rows = FeatureExtractor("efficientnet-lite0-pool")([tmp_path / f"{k}.png" for k in range(3)])
    mean = rows.astype(np.float64).mean(0)
    np.testing.assert_allclose(found.read(["3.mp4"])[0], mean, rtol=1e-6, atol=1e-6)


def mean_colours(recipe: ClipRecipe, _: Any, how: Compute) -> View:
    """Return a view without the network: 1,280 times the mean of a frame."""

    def network(batch: torch.Tensor) -> torch.Tensor:
        return batch.float().flatten(1).mean(1, keepdim=True).expand(-1, 1280)

    return View(recipe, 1, lambda image: np.asarray(image.resize((8, 8))), network, 4)


def test_joined_and_interrupted_give_the_same_bytes(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.clips.clip_source.clip_view", mean_colours)
    other = "efficientnet-lite0-pool@all-halves"
    options: dict[str, Any] = {"storage": Storage(rows_per_shard=3)}
    extract_clips(dataset, tmp_path / "a" / LITE, recipe=LITE, **options)
    extract_clips(dataset, tmp_path / "a" / other, recipe=other, **options)
    # Both at once, each clip decoded once, cut off after two clips and continued.
    with pytest.raises(KeyboardInterrupt):
        extract_clips(
            dataset, tmp_path / "b/ab", recipe=f"{LITE}+{other}", monitor=Recorder(2), **options
        )
    extract_clips(dataset, tmp_path / "b/ab", recipe=f"{LITE}+{other}", **options)
    for name in (LITE, other):
        assert content(tmp_path / "b" / name) == content(tmp_path / "a" / name)
    assert FeatureSet(tmp_path / "b/ab").read(["2.mp4"]).shape == (1, 3 * 1280)


def test_media_are_not_mixed_up(dataset: Path, tmp_path: Path) -> None:
    from pipeline.images.extract import extract

    with pytest.raises(DatasetError, match="needs a dataset of images, but 'mine' is one of clips"):
        extract(dataset, tmp_path / "out", recipe="efficientnet-lite0-pool")
    images = dataset_of(tmp_path / "images", ["0.mp4"], media="images")
    with pytest.raises(DatasetError, match="needs a dataset of clips, but 'mine' is one of images"):
        extract_clips(images, tmp_path / "out", recipe=LITE)


def test_a_volume_network_is_torchvisions() -> None:
    """Its transform and its average pooling; the canvas made small."""
    transforms = pytest.importorskip("torchvision.transforms._presets")
    recipe = replace(VOLUMES["mc3_18-pool"], canvas=(20, 27), crop=18, run=4)
    loaded = load_volume_weights(recipe, "random:1")
    network = VolumeNetwork(recipe, loaded.state)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 36, 50, 3), np.uint8)
    from PIL import Image

    cut = np.stack([network.cut(Image.fromarray(frame)) for frame in pixels])
    theirs = transforms.VideoClassification(crop_size=(18, 18), resize_size=(20, 27))
    x = theirs(torch.from_numpy(pixels).permute(0, 3, 1, 2))[None]
    back = x[0].permute(1, 2, 3, 0) * torch.tensor(theirs.std) + torch.tensor(theirs.mean)
    # torch rounds halves to even, and in another arithmetic.
    assert np.abs(cut - back.numpy() * 255).max() < 1.01
    net = VOLUME_BACKBONES["mc3_18"].filled(loaded.state).eval()
    net.fc = torch.nn.Identity()
    with torch.inference_mode():
        exact = torch.from_numpy(cut).float() / 255
        exact = (exact - torch.tensor(theirs.mean)) / torch.tensor(theirs.std)
        expected = net(exact.permute(3, 0, 1, 2)[None])
    found = network(torch.from_numpy(cut)[None])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_c3d_has_the_shapes_of_its_paper() -> None:
    with torch.device("meta"):
        net = C3D()
        assert net(torch.zeros(1, 3, 16, 112, 112)).shape == (1, 487)
    assert sum(p.numel() for p in net.parameters()) == 79_991_015
    with pytest.raises(WeightsError, match="pass the path"):
        load_volume_weights(VOLUMES["c3d-fc6"])
