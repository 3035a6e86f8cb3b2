"""For the whole suite: the real data beside the project, one thread for torch, rules of skips."""

from pathlib import Path

import pytest
import torch

from tests.project import SHARED
from tests.skips import pytest_configure as pytest_configure

_DATA = SHARED / "data"

# Two test processes on two cores would otherwise fight over threads.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def coco_images() -> list[Path]:
    """Real photos of several sizes and aspect ratios."""
    folder = _DATA / "coco-sample" / "images"
    if not folder.is_dir():
        pytest.skip("needs the real photos of ../shared/data/coco-sample")
    return sorted(folder.glob("*.jpg"))
