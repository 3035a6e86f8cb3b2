"""Shards of every library's encoders resume and verify alike, with small seeded models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images.extract import extract
from pipeline.store.jobs.options import Compute
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.shards.verify import verify
from pipeline.text import caption_source as caption_source
from pipeline.text import sentence_model
from pipeline.text.encode import encode
from tests.images.odd_files import photo
from tests.project import Recorder, contents
from tests.text.test_sentence_model import StandIn

# By recipe or encoder: the shape of a row, and the extra that its library is in.
IMAGES: dict[str, tuple[tuple[int, ...], str]] = {
    "timm:test_resnet-grid": ((5, 5, 96), "timm"),
    "open-clip:tiny-vit": ((16,), "open_clip"),
}
CAPTIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "open-clip:tiny-vit": ((16,), "open_clip"),
    "sentence-transformer:small": ((12,), "huggingface_hub"),
}
Make = Callable[..., FeatureIndex]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Five pictures of a caption each, one of them damaged."""
    (tmp_path / "pictures").mkdir()
    entries = []
    for number in range(5):
        name = f"{number}.png"
        photo(number, 100 + 20 * number, 90).save(tmp_path / "pictures" / name)
        caption = f"the {number} birds sit near a dog" + " and a dog" * number
        entries.append(ImageEntry(name, name, "train" if number == 0 else "val", (caption,)))
    (tmp_path / "pictures" / "3.png").write_bytes(b"damaged")
    manifest = Manifest("mine", tmp_path / "pictures", tuple(entries), "free", "drawn", {})
    manifest.write(tmp_path / "dataset")
    return tmp_path / "dataset"


def are_like_any(make: Make, folder: Path, shape: tuple[int, ...]) -> None:
    """Make a set at once, and interrupted, and compare the bytes."""
    whole, out = folder / "whole", folder / "out"
    index = make(whole)
    assert (index.rows, index.header.row_shape) == (5, shape)
    with pytest.raises(KeyboardInterrupt):
        make(out, monitor=Recorder(interrupt_at=2))
    monitor = Recorder()
    make(out, monitor=monitor)
    assert any("2 rows are done" in line for line in monitor.lines)
    assert contents(out) == contents(whole)
    assert verify(out).faults == []


@pytest.mark.parametrize("recipe", IMAGES)
def test_image_features_of_any_recipe(recipe: str, dataset: Path, tmp_path: Path) -> None:
    shape, library = IMAGES[recipe]
    prepare(library, tmp_path)
    how = Compute("random:0", batch_size=1, threads=1)
    are_like_any(partial(extract, dataset, recipe=recipe, compute=how), tmp_path, shape)


@pytest.mark.parametrize("encoder", CAPTIONS)
def test_caption_features_of_any_encoder(
    encoder: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, library = CAPTIONS[encoder]
    prepare(library, tmp_path)
    monkeypatch.setattr(caption_source, "_BYTES_AT_ONCE", 4 * shape[0])
    options: dict[str, Any] = {"weights": "random:0"} if library == "open_clip" else {}
    if not options:
        (tmp_path / "small").mkdir()
        (tmp_path / "small" / "modules.json").write_text('[{"path": ""}]')
        monkeypatch.setattr(sentence_model, "_load", lambda *_: StandIn())
        encoder = f"sentence-transformer:{tmp_path / 'small'}"
    are_like_any(partial(encode, dataset, encoder=encoder, **options), tmp_path, shape)


def prepare(library: str, folder: Path) -> None:
    """Skip where a library is missing, and make the small models of open_clip known."""
    pytest.importorskip(library, reason=f"needs the package {library}")
    if library == "open_clip":
        from tests.images.networks.factories import add_tiny_models

        add_tiny_models(folder)
