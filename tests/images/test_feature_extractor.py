"""Features without files: the same rows as in shards, in the given order."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from pipeline.images.decoding.decode import read_image
from pipeline.images.encoder import Preprocess
from pipeline.images.extract import extract
from pipeline.images.feature_extractor import FeatureExtractor, encoder
from pipeline.images.recipes import RecipeError
from pipeline.store.devices import one_core_each
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import ENGINES, Compute
from pipeline.store.shards.feature_set import FeatureSet
from tests.images.networks.small import use_narrow_networks
from tests.images.odd_files import photo
from tests.images.test_extract import prepared

LITE = "efficientnet-lite0-pool"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eleven pictures of several sizes, one of them stored lying on its side."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for number in range(11):
        exif = Image.Exif()
        if number == 3:
            exif[0x0112] = 6
        paths.append(folder / f"{number:02d}.png")
        photo(number, 60 + 31 * number, 90).save(paths[-1], exif=exif)
    return paths


@pytest.fixture(scope="module")
def extractor() -> FeatureExtractor:
    return FeatureExtractor(LITE)


@pytest.mark.parametrize("recipe", [LITE, "efficientnet-lite0-grid"])
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_those_of_the_shards(
    recipe: str, engine: str, files: list[Path], tmp_path: Path
) -> None:
    index = extract(
        prepared(tmp_path, files), tmp_path / "out", recipe=recipe, compute=Compute(engine=engine)
    )
    features = FeatureSet(tmp_path / "out")
    found = FeatureExtractor(recipe, engine=engine)
    rows = found(files)
    assert rows.dtype == np.float32
    assert rows.shape == (len(files), *found.recipe.shape)
    np.testing.assert_array_equal(rows, features.read([path.name for path in files]))
    assert found.recipe_hash == index.header.recipe_hash


def test_pictures_come_in_any_order_and_kind(
    extractor: FeatureExtractor, files: list[Path]
) -> None:
    rows = extractor(files)
    order = [4, 3, 10, 3, 0]
    with Image.open(files[3]) as on_its_side, Image.open(files[0]) as first:
        mixed: list[str | Path | Image.Image] = [str(files[4]), on_its_side, files[10], files[3]]
        found = extractor([*mixed, first])
        assert on_its_side.getexif()[0x0112] == 6, "a given picture is not changed"
    np.testing.assert_allclose(found, rows[order], rtol=1e-4, atol=1e-5)
    assert extractor([]).shape == (0, 1280)
    decoded = read_image(files[3]).image
    assert decoded is not None
    # It is not turned again.
    np.testing.assert_array_equal(extractor([decoded]), extractor([files[3]]))


def test_a_picture_without_features_is_named(
    extractor: FeatureExtractor, files: list[Path], tmp_path: Path
) -> None:
    missing, cut = tmp_path / "gone.jpg", tmp_path / "cut.jpg"
    with pytest.raises(
        WrongUsage, match=r"gone\.jpg \(number 2 of .*, from 0\) is missing: no such"
    ):
        extractor([*files[:2], missing])
    photo(1, 300, 200).save(cut)
    cut.write_bytes(cut.read_bytes()[:-900])
    with (
        Image.open(cut) as opened,
        pytest.raises(WrongUsage, match=r"cut\.jpg .* is unreadable: image file is truncated"),
    ):
        extractor([opened])
    with pytest.raises(WrongUsage, match=r"an image .* is refused: values of Pillow's mode F"):
        extractor([Image.new("F", (8, 8))])
    with pytest.raises(RecipeError, match="float64"):
        FeatureExtractor(LITE, precision="float64")


class Photos(torch.utils.data.Dataset[torch.Tensor]):
    """As in a program of one's own."""

    def __init__(self, files: list[Path], preprocess: Preprocess) -> None:
        self.files, self.preprocess = files, preprocess

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.preprocess(self.files[row])


@pytest.mark.parametrize("recipe", ["vgg19-fc7-10crop", LITE])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_of_ones_own_has_the_rows_of_the_shards(
    recipe: str, engine: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_narrow_networks(monkeypatch)
    how = Compute(weights="random:0", engine=engine, batch_size=4)
    # All batches are full, since extraction pads the last.
    extract(prepared(tmp_path, files[:8]), tmp_path / "out", recipe=recipe, compute=how)
    own = encoder(recipe, "random:0", "cpu", engine)
    preprocess = pickle.loads(pickle.dumps(own.preprocess))
    loader = DataLoader(
        Photos(files[:8], preprocess), 4, num_workers=1, multiprocessing_context="fork"
    )
    with one_core_each():
        rows = torch.cat([own.network.train()(windows) for windows in loader])
    np.testing.assert_array_equal(rows, FeatureSet(tmp_path / "out")[:])
    assert not rows.requires_grad


def test_the_reference_engine_has_gradients_of_pixels_and_weights(files: list[Path]) -> None:
    own = encoder("efficientnet-lite0-grid", engine="reference")
    windows = own.preprocess(files[0])[None].float()
    before = windows.clone()
    rows = own.network(windows.requires_grad_())
    torch.testing.assert_close(rows, own.network(before.byte()), rtol=0, atol=0)
    # Against differences: along a direction, in float32.
    rows.square().sum().backward()
    assert windows.grad is not None
    assert torch.equal(windows.detach(), before)
    step = windows.grad / windows.grad.norm()
    with torch.no_grad():
        above, below = (own.network(before + sign * step).square().sum() for sign in (0.25, -0.25))
    assert float((above - below) / 0.5) == pytest.approx(float(windows.grad.norm()), rel=0.1)
    weights = [*own.network.requires_grad_().parameters()]
    try:
        own.network(before).sum().backward()
        assert any(weight.grad is not None for weight in weights)
    finally:
        own.network.requires_grad_(False)
    with pytest.raises(RecipeError, match='engine="reference"'):
        encoder("efficientnet-lite0-grid").network(windows)


def test_preprocessing_names_what_it_cannot_use(files: list[Path], tmp_path: Path) -> None:
    preprocess = encoder(LITE).preprocess
    for picture in (files[0].read_bytes(), Image.open(files[0]), str(files[0])):
        assert torch.equal(preprocess(picture), preprocess(files[0]))
    with pytest.raises(WrongUsage, match=r"gone\.jpg is missing: no such"):
        preprocess(tmp_path / "gone.jpg")
    with pytest.raises(WrongUsage, match="an image is unreadable: "):
        preprocess(b"not an image")
