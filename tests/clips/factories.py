"""Sounds and files of sound, made in milliseconds."""

import wave
from pathlib import Path
from typing import Any

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


def write_changing_sound(path: Path) -> Path:
    """Write half a second of 440 Hz twice, as AAC: at 16 kHz in mono, then 48 kHz in stereo."""
    first = encode(path, "aac", tone(440)).read_bytes()
    second = encode(path, "aac", tone(440, rate=48_000), rate=48_000, layout="stereo")
    path.write_bytes(first + second.read_bytes())
    return path


def encode(
    path: Path, codec: str, sound: np.ndarray | None, frames: int = 0, rate: int = RATE,
    layout: str = "mono",
) -> Path:  # fmt: skip
    """Write sound and black frames, 10 a second, by PyAV; the suffix names the container."""
    import av as package

    av: Any = package
    with av.open(str(path), "w") as file:
        picture = file.add_stream("mpeg4", rate=10) if frames else None
        track = file.add_stream(codec, rate=rate, layout=layout) if sound is not None else None
        if picture is not None:
            picture.width, picture.height, picture.pix_fmt = 32, 32, "yuv420p"
            for _ in range(frames):
                black = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))
                file.mux(picture.encode(black))
            file.mux(picture.encode(None))
        if track is not None:
            assert sound is not None
            whole = np.rint(sound * 32767).astype("<i2")[None]
            frame = av.AudioFrame.from_ndarray(whole, format="s16", layout="mono")
            frame.rate = rate
            for part in av.AudioResampler(
                format=track.format, layout=layout, frame_size=track.frame_size or 0
            ).resample(frame):
                file.mux(track.encode(part))
            file.mux(track.encode(None))
    return path
