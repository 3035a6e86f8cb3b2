"""Sounds and files of sound, made in milliseconds."""

import wave
from pathlib import Path

import numpy as np

RATE = 16_000


def tone(hertz: float, seconds: float = 0.5, rate: int = RATE) -> np.ndarray:
    """Return a tone of half the full scale, (samples,) float32."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype("f4")


def write_wav(path: Path, *channels: np.ndarray, rate: int = RATE) -> Path:
    """Write channels of floats as a WAV file of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((len(channels), 2, rate, 0, "NONE", ""))
        whole = np.rint(np.stack(channels, axis=1) * 32767).astype("<i2")
        file.writeframes(whole.tobytes())
    return path
