"""A folder of images, and what the tables of the tests say of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.datasets.manifest import Manifest
from pipeline.datasets.prepare import prepare

Read = Callable[..., Manifest]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with three images, below another that holds the tables."""
    folder = tmp_path / "pics"
    (folder / "in").mkdir(parents=True)
    for name in ("a.jpg", "in/b.jpg", "c d.jpg"):
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Read:
    """Return a function that reads a table of these bytes, stored next to the images."""

    def read(name: str, content: str | bytes, **options: Any) -> Manifest:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return prepare(tmp_path / name, root=root, **options)

    return read
