"""Out-of-core mean and covariance in one resumable pass."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pipeline.store.files import appearing_whole, parse_json
from pipeline.store.hashing import canonical_json
from pipeline.store.own_files import reading
from pipeline.text import EncoderError

_PANEL = 1024  # rows of the covariance per product


class Covariance:
    """Mean and scatter of the rows added so far; the same chunks in order yield the same bits.

    Products of a chunk are in float32 on the device ("cpu" is numpy, others are torch's), sums in
    float64. Only one triangle is computed and stored, in panels of 1024 rows.
    """

    def __init__(self, width: int, device: str = "cpu") -> None:
        """Start without rows; `width` is their length D."""
        self.rows = 0  # number of added rows
        self._width, self._device = width, device
        self._shift = np.zeros(width, np.float32)
        self._sums = np.zeros(width)
        self._panels = [np.zeros((len(span), width - span.start)) for span in _spans(width)]

    @staticmethod
    def memory(width: int) -> int:
        """Return the memory for adding chunks, without the chunk, in bytes."""
        return Covariance.disk(width) + 4 * min(width, _PANEL) * width

    @staticmethod
    def disk(width: int) -> int:
        """Return the size of a file of `save` without its header line, in bytes."""
        return 12 * width + sum(8 * len(span) * (width - span.start) for span in _spans(width))

    def add(self, chunk: npt.NDArray[np.float32]) -> None:
        """Add rows (rows, D) float32, at least one; `chunk` is overwritten."""
        # Rows are shifted by the mean of the first chunk: n sum(x^2) - sum(x)^2 would lose all
        # digits if the mean is much larger than the deviations.
        if not self.rows:
            self._shift[:] = chunk.mean(axis=0, dtype=np.float64)
        chunk -= self._shift
        sums = chunk.sum(axis=0, dtype=np.float64)
        if not np.isfinite(sums).all():
            raise EncoderError(
                f"rows {self.rows} to {self.rows + len(chunk) - 1} (from 0) have NaN, infinite or "
                "overflowing numbers; encoders should return finite rows: report this"
            )
        for panel, product in zip(self._panels, _products(chunk, self._device), strict=True):
            panel += product
        self._sums += sums
        self.rows += len(chunk)

    def finish(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return mean (D,) and covariance (D, D), both float64, and release the sums.

        The covariance has the denominator rows - 1, in Fortran order; only the lower triangle is
        filled.
        """
        covariance = np.empty((self._width, self._width), order="F")
        for span in _spans(self._width):
            panel = self._panels.pop(0)  # released one by one while the covariance fills
            here, beyond = slice(span.start, span.stop), slice(span.start, None)
            for row, total in zip(panel, self._sums[here], strict=True):
                row -= self._sums[beyond] * (total / self.rows)
            panel /= self.rows - 1
            covariance[beyond, here] = panel.T
        return self._shift + self._sums / self.rows, covariance

    def save(self, path: Path, fingerprint: str) -> None:
        """Save the sums atomically, with a hash of everything that determines rows and chunks."""
        checksum = 0
        with appearing_whole(path) as part, part.open("wb") as stream:
            stream.write(self._head(fingerprint, self.rows))
            for array in self._arrays():
                stream.write(array.data)
                checksum = zlib.crc32(array.data, checksum)
            stream.write(checksum.to_bytes(4, "big"))

    def load(self, path: Path, fingerprint: str) -> None:
        """Load sums that `save` wrote, if they have this fingerprint and width."""
        what, remedy = "the unfinished sums of a covariance", "delete it to start again"
        with reading(path, what, remedy, EncoderError), path.open("rb") as stream:
            head = stream.readline(4096)
            self.rows = int(parse_json(head)["rows"])
            if head != self._head(fingerprint, self.rows) or not self._read(stream):
                raise ValueError("its contents do not match its checksum or header")

    def _head(self, fingerprint: str, rows: int) -> bytes:
        state = {"fingerprint": fingerprint, "rows": rows, "width": self._width}
        return (canonical_json(state) + "\n").encode()

    def _arrays(self) -> list[npt.NDArray[Any]]:
        return [self._shift, self._sums, *self._panels]

    def _read(self, stream: BinaryIO) -> bool:
        """Read into the arrays; return whether they and their checksum are complete."""
        checksum = 0
        for array in self._arrays():
            stream.readinto(array.data)  # type: ignore[attr-defined]
            checksum = zlib.crc32(array.data, checksum)
        return stream.read() == checksum.to_bytes(4, "big")


def _spans(width: int) -> list[range]:
    return [range(start, min(start + _PANEL, width)) for start in range(0, width, _PANEL)]


def _products(chunk: npt.NDArray[np.float32], device: str) -> Iterator[npt.NDArray[np.float32]]:
    """Yield, panel by panel, the upper triangle of chunk.T @ chunk for chunk (rows, D)."""
    if device == "cpu":
        for span in _spans(chunk.shape[1]):
            yield chunk[:, span.start : span.stop].T @ chunk[:, span.start :]
        return
    import torch

    there = torch.from_numpy(chunk).to(device)
    for span in _spans(chunk.shape[1]):
        yield (there[:, span.start : span.stop].T @ there[:, span.start :]).cpu().numpy()
