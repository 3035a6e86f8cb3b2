"""Rows of BirdNET distinguish sounds; the test runs this in a process of its own."""

import numpy as np

from pipeline.clips.sound.network import load_sound_network
from tests.clips.factories import tone

if __name__ == "__main__":
    network = load_sound_network()
    low, same, high = (network.row(tone(hertz, 1.0, 48_000)) for hertz in (400, 400, 4000))
    np.testing.assert_array_equal(low, same)
    assert low.shape == (1024,)
    assert np.abs(low - high).max() > 0.1
    assert not network.row(np.zeros(0, np.float32)).any()
