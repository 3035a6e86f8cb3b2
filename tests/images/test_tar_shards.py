"""Images of tar files in a store: features equal to those of unpacked files, shard by shard."""

import io
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

import pipeline

RECIPE = "timm:test_resnet"
HOW = pipeline.Compute("random:0", batch_size=4)
PHOTOS = 10


def photo(number: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (30 + number % 7, 40, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def tar_of(names: list[str], first: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for number, name in enumerate(names, first):
            data = photo(number)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.fixture
def tars(tmp_path: Path, s3: str, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Three tar files in a store, and a folder of their unpacked members."""
    url, files = f"{s3}/{request.node.name[:40]}", fsspec.filesystem("s3")
    unpacked = tmp_path / "tars"
    for number in range(3):
        names = [f"{at:02}.png" for at in range(PHOTOS)]
        data = tar_of(names, PHOTOS * number)
        files.pipe(f"{url}/tars/{number}.tar", data)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(unpacked / str(number), filter="data")
    return url, unpacked


def extract(url: str, **options: Any) -> Any:
    images = options.pop("images", f"{url}/tars/{{0..2}}.tar")
    return pipeline.extract(
        images, f"{url}/out", recipe=RECIPE, compute=HOW,
        storage=pipeline.Storage(**options.pop("storage", {})), **options,
    )  # fmt: skip


def objects(url: str) -> dict[str, bytes]:
    files = fsspec.filesystem("s3")
    files.invalidate_cache()
    folder = f"{url}/out".removeprefix("s3://")
    return {path[len(folder) + 1 :]: files.cat_file(path) for path in files.find(folder)}


def test_a_set_in_a_store_is_that_of_unpacked_files(
    tars: tuple[str, Path], tmp_path: Path, s3_requests: list[tuple[str, str]]
) -> None:
    url, unpacked = tars
    index = extract(url)
    out = tmp_path / "out"
    assert index == pipeline.extract(
        unpacked, out, recipe=RECIPE, compute=HOW, storage=pipeline.Storage(rows_per_shard=PHOTOS)
    )
    assert objects(url) == {path.name: path.read_bytes() for path in out.iterdir()}
    s3_requests.clear()
    assert extract(url) == index
    assert {method for method, path in s3_requests if "shard-" in path} <= {"HEAD"}
