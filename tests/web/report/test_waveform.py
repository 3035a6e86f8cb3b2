"""The line of a sound: its columns against loops over the samples."""

import re

import numpy as np
import pytest

from pipeline.web.report.thumbnails import SIDE, waveform

HEIGHT = 24


@pytest.mark.parametrize("samples", [1, 7, 223, 225, 5000])
def test_columns_span_the_samples(samples: int) -> None:
    sound = np.random.default_rng(samples).normal(0, 0.1, samples).astype(np.float32)
    drawn = waveform(sound, 100)
    assert f"its sound, {samples / 100:.1f} s" in drawn
    found = re.search(r'points="([^"]*)"', drawn)
    assert found is not None
    points = [tuple(map(float, p.split(","))) for p in found[1].split()]
    columns = min(SIDE, samples)
    assert len(points) == 2 * columns
    loudest = np.abs(sound).max()
    for column in range(columns):
        part = sound[column * samples // columns : (column + 1) * samples // columns]
        top, bottom = points[column][1], points[-1 - column][1]
        assert top == pytest.approx(HEIGHT / 2 * (1 - part.max() / loudest), abs=0.06)
        assert bottom == pytest.approx(HEIGHT / 2 * (1 - part.min() / loudest), abs=0.06)
    assert {x for x, _ in points} <= {x for x, _ in points if 0 <= x <= SIDE}


def test_silence_is_a_line_and_no_sound_is_nothing() -> None:
    assert waveform(np.zeros(0, np.float32), 100) == ""
    assert f",{HEIGHT / 2}" in waveform(np.zeros(500, np.float32), 100)
