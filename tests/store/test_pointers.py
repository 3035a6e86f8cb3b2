"""A pointer of Git LFS in place of a file is named as one, whatever reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.source import read_text
from pipeline.images.decoding.decode import UnusableImage, decode
from pipeline.images.networks.checkpoints import read_checkpoint
from pipeline.store.convert.importers.arrays import NpyFeatures
from pipeline.store.errors import PipelineError
from pipeline.text.vectors.sources import load_vectors

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (read_text, "captions.csv"),
        (load_vectors, "vectors.vec"),
        (load_vectors, "vectors.bin"),
        (read_checkpoint, "weights.pth"),
        (lambda path: NpyFeatures(path, ["a"]), "features.npy"),
    ],
)
def test_pointers_are_named(tmp_path: Path, read: Callable[[Any], Any], name: str) -> None:
    (file := tmp_path / name).write_text(POINTER)
    with pytest.raises(PipelineError, match=r"a pointer of Git LFS .* `git lfs pull`"):
        read(str(file) if read is load_vectors else file)


def test_an_image_that_is_a_pointer_says_so() -> None:
    with pytest.raises(UnusableImage, match="a pointer of Git LFS"):
        decode(POINTER.encode())
