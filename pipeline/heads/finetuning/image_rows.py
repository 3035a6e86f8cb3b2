"""Image files as training rows: decoded and cropped windows, the input of the network."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pipeline.heads import HeadError
from pipeline.heads.finetuning.augmentation import Augmentation, augmented
from pipeline.heads.inputs.feature_rows import Features
from pipeline.images.decoding.decode import as_image, decoding_rule, read_image, source_crc32
from pipeline.images.recipes import Recipe
from pipeline.images.transforms import windows_of
from pipeline.store.hashing import canonical_json
from pipeline.store.shards.row_keys import RowNumbers

_SHOWN = 5


@dataclass(frozen=True)
class ImageFile:
    """An image file, and the CRC-32 of the file from which its features were computed."""

    image_id: str
    path: Path
    crc32: int


class ImageRows:
    """Windows (size, size, 3) of image files, integers 0 to 255: the input of a network."""

    def __init__(
        self,
        files: Sequence[ImageFile],
        recipe: Recipe,
        augmentation: Augmentation | None = None,
        epoch: int = 0,
    ) -> None:
        """Describe the rows without reading them; without augmentation, the recipe's window."""
        self.files = files
        self.row_shape: tuple[int, ...] = (recipe.crop.size, recipe.crop.size, 3)
        self._recipe, self._augmentation, self._epoch = recipe, augmentation, epoch

    def __len__(self) -> int:
        return len(self.files)

    def in_epoch(self, epoch: int) -> "ImageRows":
        """Return the same images with the crops of an epoch."""
        return ImageRows(self.files, self._recipe, self._augmentation, epoch)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, size, size, 3) float32 of unchanged files (n,), decoded on all cores."""
        # An exception would cancel the other threads' work, so failures are collected.
        decoded = list(_threads().map(self._window, [self.files[row] for row in rows.tolist()]))
        if reasons := [window for window in decoded if isinstance(window, str)]:
            raise HeadError(_refusal(reasons, len(decoded)))
        windows = np.empty((len(decoded), *self.row_shape), np.float32)
        for at, window in enumerate(decoded):
            windows[at] = window
        return windows

    def digest(self) -> str:
        """Return a digest of the files, the recipe and the augmentation."""
        drawn = None if self._augmentation is None else vars(self._augmentation)
        digest = hashlib.sha256(canonical_json([self._recipe.to_json(), drawn]).encode())
        for file in self.files:
            digest.update(f"\0{file.image_id}\0{file.crc32}".encode())
        return digest.hexdigest()

    def _window(self, file: ImageFile) -> np.ndarray | str:
        decoded = read_image(file.path, decoding_rule(self._recipe.decode))
        if decoded.pixels is None:
            return f"{file.path}: {decoded.reason}"
        if decoded.source_crc32 != file.crc32:
            return f"{file.path}: changed since its features were extracted"
        if self._augmentation is None:
            return windows_of(decoded.pixels, self._recipe.resize, self._recipe.crop)[0]
        rng = self._augmentation.generator(self._epoch, file.image_id)
        return augmented(
            as_image(decoded.pixels), self._recipe, self._augmentation.smallest_crop, rng
        )


def require_unchanged(files: Sequence[ImageFile]) -> None:
    """Raise HeadError if the CRC-32 of a file is not the one recorded with its features."""
    checksums = _threads().map(lambda file: source_crc32(file.path), files)
    mismatches = [
        f"{file.path}: {'changed' if crc32 else 'missing'} since its features were extracted"
        for file, crc32 in zip(files, checksums, strict=True)
        if crc32 != file.crc32
    ]
    if mismatches:
        raise HeadError(_refusal(mismatches, len(files)))


def _refusal(reasons: Sequence[str], files: int) -> str:
    return (
        f"{len(reasons)} of {files} images do not match their features: "
        f"{'; '.join(reasons[:_SHOWN])}; restore the files, or run `pipeline extract` and "
        "`pipeline train` of the head to fine-tune again"
    )


def _threads() -> ThreadPoolExecutor:
    """Return this process's threads for reading and decoding; a fork inherits none."""
    return _threads_of(os.getpid())


@cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0))), thread_name_prefix="read")
