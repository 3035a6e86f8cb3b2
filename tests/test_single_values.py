"""A single text, image or row returns a single row; nothing is read letter by letter."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import pipeline
from pipeline.images.given_pictures import picture_of
from pipeline.store.errors import PipelineError, UnexpectedType, WrongUsage
from pipeline.store.one_or_many import texts_of, values_of
from pipeline.text.encoders.registry import encoder_options
from pipeline.text.fitting import Fitting, fit_encoder
from tests.text.encoders.test_every_encoder import CAPTIONS

LITE = "efficientnet-lite0-pool"


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "mean.encoder"
    fit_encoder(encoder_options("mean"), folder, Fitting(CAPTIONS, "made", "train"), CAPTIONS)
    return folder


@pytest.fixture(scope="module")
def extractor() -> pipeline.FeatureExtractor:
    return pipeline.FeatureExtractor(LITE)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 61, 3), np.uint8)


def test_a_sentence_is_a_row(encoder_folder: Path) -> None:
    encoder = pipeline.load_encoder(encoder_folder)
    rows = encoder.encode(["a dog runs", "two dogs"])
    assert rows.shape == (2, 50)
    np.testing.assert_array_equal(encoder.encode("a dog runs"), rows[0])
    for several in (("a dog runs",), np.array(["a dog runs"]), iter(["a dog runs"])):
        np.testing.assert_array_equal(encoder.encode(several), rows[:1])
    assert encoder.encode([]).shape == (0, 50)
    known = pipeline.load_encoder(encoder_folder, ["a dog runs"])
    np.testing.assert_array_equal(known.encode("a dog runs"), rows[0])


@pytest.mark.parametrize("wrong", [7, b"a dog", {"a dog"}, {"a dog": 1}, ["a dog", 7], [b"a dog"]])
def test_what_is_no_text_is_refused(wrong: Any, encoder_folder: Path) -> None:
    with pytest.raises(UnexpectedType, match=r"expected a (caption \()?str") as found:
        pipeline.load_encoder(encoder_folder).encode(wrong)
    assert isinstance(found.value, TypeError)
    assert isinstance(found.value, PipelineError)


def as_file(pixels: np.ndarray, form: str = "PNG") -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "bytes": as_file,
    "bytearray": lambda pixels: bytearray(as_file(pixels)),
    "pillow": Image.fromarray,
    "array": lambda pixels: pixels,
    "float array": lambda pixels: pixels / 255,
    "float32 array": lambda pixels: (pixels / 255).astype(np.float32),
    "reversed array": lambda pixels: pixels[:, ::-1][:, ::-1],
    "tensor, channels last": torch.from_numpy,
    "tensor, channels first": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1),
    "float tensor": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1) / 255,
    "half tensor": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1).half() / 255,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image_has_the_same_pixels(kind: str, pixels: np.ndarray) -> None:
    found = picture_of(KINDS[kind](pixels))
    assert isinstance(found, Image.Image)
    np.testing.assert_array_equal(np.asarray(found), pixels)


def test_an_image_is_a_row(
    extractor: pipeline.FeatureExtractor, pixels: np.ndarray, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(as_file(pixels))
    row = extractor(pixels)
    assert row.shape == (1280,)
    file = tmp_path / "a.png"
    for image in (str(file), file, as_file(pixels), torch.from_numpy(pixels)):
        np.testing.assert_allclose(extractor(image), row, rtol=1e-4, atol=1e-5)
    batch = np.stack([pixels, pixels[::-1]])
    for several in (batch, [*batch], (*batch,), torch.from_numpy(batch), iter([*batch])):
        rows = extractor(several)
        assert rows.shape == (2, 1280)
        np.testing.assert_allclose(rows[0], row, rtol=1e-4, atol=1e-5)
    mixed = extractor([str(tmp_path / "a.png"), pixels[..., 0], as_file(pixels)])
    np.testing.assert_allclose(mixed[[0, 2]], [row, row], rtol=1e-4, atol=1e-5)
    assert extractor([]).shape == extractor(np.empty((0, 8, 8, 3), np.uint8)).shape == (0, 1280)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "found NoneType"),
        (7, "found int"),
        ([7], "found int '7'"),
        ({"a.jpg": 1}, "found dict"),
        ({"a.jpg"}, "found set"),
        (np.zeros((8, 8, 4), np.uint8), r"found uint8 of shape \(8, 8, 4\)"),
        (np.zeros((3, 8, 8), np.uint8), r"found uint8 of shape \(3, 8, 8\)"),
        (np.zeros((0, 8, 3), np.uint8), r"found uint8 of shape \(0, 8, 3\)"),
        (np.zeros((8, 8, 3), np.int64), "found int64"),
        (np.full((8, 8, 3), 200.0), "values from 200 to 200; expected floats from 0 to 1"),
        (np.full((8, 8, 3), np.nan), "values from nan to nan"),
        (torch.zeros(3, 8, 3), "is ambiguous"),
        (torch.zeros(5), "found float32 of shape"),
    ],
)
def test_what_is_no_image_is_refused(
    wrong: Any, message: str, extractor: pipeline.FeatureExtractor
) -> None:
    with pytest.raises(UnexpectedType, match=message):
        extractor(wrong)


def test_bytes_that_are_no_image_are_named(
    extractor: pipeline.FeatureExtractor, pixels: np.ndarray
) -> None:
    with pytest.raises(WrongUsage, match=r"an image \(number 1 .* is unreadable: not an image"):
        extractor([pixels, b"no image"])


def test_paths_and_names_may_stand_alone(tmp_path: Path) -> None:
    assert values_of("a.h5", (str, Path), "a path") == ["a.h5"]
    assert values_of([tmp_path], (str, Path), "a path") == [tmp_path]
    assert texts_of("vsepp", "experiment") == (["vsepp"], True)
    with pytest.raises(UnexpectedType, match="found int '7'; expected a path"):
        values_of(7, (str, Path), "a path")
    with pytest.raises(PipelineError, match="'vseppp'"):
        pipeline.run("vseppp", tmp_path)
    with pytest.raises(PipelineError, match=r"none\.h5"):
        pipeline.compare(tmp_path / "none.h5", str(tmp_path / "other.h5"))
