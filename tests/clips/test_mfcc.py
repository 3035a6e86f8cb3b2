"""Cepstral coefficients: against their definition written out in loops, and against librosa."""

import math

import numpy as np
import pytest

from pipeline.clips.sound import mfcc as module
from pipeline.clips.sound.mfcc import Mfcc


def by_definition(sound: np.ndarray, rule: Mfcc) -> np.ndarray:
    """Return the coefficients (windows, coefficients), every sum written out."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    n, top = rule.window, mel(rule.rate / 2)
    edges = [700 * (10 ** (k * top / (rule.bands + 1) / 2595) - 1) for k in range(rule.bands + 2)]
    rows = []
    for start in range(0, len(sound) - n + 1, rule.hop):
        shaped = [
            float(sound[start + t]) * (0.5 - 0.5 * math.cos(2 * math.pi * t / n)) for t in range(n)
        ]
        power = []
        for k in range(n // 2 + 1):
            real = sum(v * math.cos(2 * math.pi * k * t / n) for t, v in enumerate(shaped))
            imaginary = sum(v * math.sin(2 * math.pi * k * t / n) for t, v in enumerate(shaped))
            power.append(real**2 + imaginary**2)
        decibels = []
        for low, peak, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for k, value in enumerate(power):
                hertz = k * rule.rate / n
                if low < hertz <= peak:
                    total += value * (hertz - low) / (peak - low)
                elif peak < hertz < high:
                    total += value * (high - hertz) / (high - peak)
            decibels.append(10 * math.log10(max(total, 1e-10)))
        m = rule.bands
        rows.append(
            [
                math.sqrt((1 if c == 0 else 2) / m)
                * sum(d * math.cos(math.pi * c * (b + 0.5) / m) for b, d in enumerate(decibels))
                for c in range(rule.coefficients)
            ]
        )
    return np.array(rows)


def slopes(rows: np.ndarray, reach: int) -> np.ndarray:
    """Return least-squares slopes by numpy's fit of a line, the edges repeated."""
    found = np.empty_like(rows)
    for t in range(len(rows)):
        near = rows[np.clip(np.arange(t - reach, t + reach + 1), 0, len(rows) - 1)]
        found[t] = np.polyfit(np.arange(-reach, reach + 1), near, 1)[0]
    return found


def test_they_are_as_defined() -> None:
    rule = Mfcc(rate=2000, window=64, hop=24, bands=8, coefficients=5)
    sound = np.random.default_rng(0).normal(0, 0.1, 200).astype(np.float32)
    expected = by_definition(sound, rule)
    first = slopes(expected, 2)
    found = rule(sound)
    assert found.shape == (6, 15)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, :5], expected, atol=1e-4)
    np.testing.assert_allclose(found[:, 5:10], first, atol=1e-4)
    np.testing.assert_allclose(found[:, 10:], slopes(first, 2), atol=1e-4)


def test_they_are_those_of_librosa() -> None:
    librosa = pytest.importorskip("librosa", reason="librosa is no dependency")
    sound = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    power = librosa.feature.melspectrogram(
        y=sound, sr=16_000, n_fft=512, hop_length=160, n_mels=40, htk=True, norm=None, center=False
    )
    decibels = librosa.power_to_db(power, top_db=None)
    expected = librosa.feature.mfcc(S=decibels, n_mfcc=13)
    parts = [librosa.feature.delta(expected, width=5, order=1, mode="nearest")]
    parts.append(librosa.feature.delta(parts[0], width=5, order=1, mode="nearest"))
    np.testing.assert_allclose(Mfcc()(sound), np.concatenate([expected, *parts]).T, atol=1e-4)


@pytest.mark.parametrize(("samples", "windows"), [(0, 0), (511, 0), (512, 1), (671, 1), (672, 2)])
def test_no_window_reaches_beyond_the_sound(samples: int, windows: int) -> None:
    found = Mfcc()(np.zeros(samples, np.float32))
    assert found.shape == (windows, 39)
    assert np.isfinite(found).all()


def test_a_long_sound_is_as_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = np.random.default_rng(2).normal(0, 0.1, 4000).astype(np.float32)
    whole = Mfcc()(sound)
    monkeypatch.setattr(module, "_WINDOWS_AT_ONCE", 3)
    np.testing.assert_allclose(Mfcc()(sound), whole, rtol=1e-6, atol=1e-5)
