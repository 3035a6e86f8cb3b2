"""Image files as training rows: decoded and cropped windows, the input of the network."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pipeline.heads.finetuning import FinetuningError
from pipeline.heads.finetuning.augmentation import Augmentation, augmented
from pipeline.heads.inputs.feature_rows import Features, RowNumbers
from pipeline.images.decoding.decode import decoding_rule, read_image, source_crc32
from pipeline.images.recipes import Recipe
from pipeline.images.transforms import cut_crops, resize_image
from pipeline.store.hashing import canonical_json

_SHOWN = 5


@dataclass(frozen=True)
class Picture:
    """An image file.

    Attributes
    ----------
    image_id, path : str, Path. Id and path of the image.
    crc32 : int. CRC-32 of the file from which its features were computed.
    """

    image_id: str
    path: Path
    crc32: int


class PictureRows:
    """Windows (size, size, 3) of image files: the input of a recipe's network, integers 0 to 255.

    Attributes
    ----------
    pictures : sequence of `Picture`. Image file of each row.
    row_shape : tuple of int. Shape of one row.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        recipe: Recipe,
        augmentation: Augmentation | None = None,
        epoch: int = 0,
    ) -> None:
        """Describe the rows without reading them.

        Parameters
        ----------
        pictures : sequence of `Picture`. Image file of each row.
        recipe : Recipe. Recipe with one window per image.
        augmentation : Augmentation or None. Parameters of random crops; None: the recipe's own
            window.
        epoch : int. Epoch of the random crops.
        """
        self.pictures = pictures
        self.row_shape: tuple[int, ...] = (recipe.crop.size, recipe.crop.size, 3)
        self._recipe, self._augmentation, self._epoch = recipe, augmentation, epoch

    def __len__(self) -> int:
        return len(self.pictures)

    def in_epoch(self, epoch: int) -> "PictureRows":
        """Return the same images with the crops of an epoch."""
        return PictureRows(self.pictures, self._recipe, self._augmentation, epoch)

    def take(self, rows: RowNumbers) -> Features:
        """Return (n, size, size, 3) float32 of row numbers (n,), decoded on all cores.

        Raises
        ------
        FinetuningError
            A file is not the one that the features were computed from, or cannot be decoded.
        FileReadError
            The file system failed, not the file.
        """
        # An exception would cancel the other threads' work, so failures are collected.
        found = list(_threads().map(self._window, [self.pictures[row] for row in rows.tolist()]))
        if faults := [window for window in found if isinstance(window, str)]:
            raise FinetuningError(_refusal(faults, len(found)))
        windows = np.empty((len(found), *self.row_shape), np.float32)
        for at, window in enumerate(found):
            windows[at] = window
        return windows

    def digest(self) -> str:
        """Return a digest of the files, the recipe and the augmentation."""
        drawn = None if self._augmentation is None else vars(self._augmentation)
        digest = hashlib.sha256(canonical_json([self._recipe.to_json(), drawn]).encode())
        for picture in self.pictures:
            digest.update(f"\0{picture.image_id}\0{picture.crc32}".encode())
        return digest.hexdigest()

    def _window(self, picture: Picture) -> np.ndarray | str:
        decoded = read_image(picture.path, decoding_rule(self._recipe.decode))
        if decoded.image is None:
            return f"{picture.path}: {decoded.reason}"
        if decoded.source_crc32 != picture.crc32:
            return f"{picture.path}: changed since its features were extracted"
        if self._augmentation is None:
            return cut_crops(resize_image(decoded.image, self._recipe.resize), self._recipe.crop)[0]
        rng = self._augmentation.generator(self._epoch, picture.image_id)
        return augmented(decoded.image, self._recipe, self._augmentation.smallest_crop, rng)


def require_unchanged(pictures: Sequence[Picture]) -> None:
    """Check the CRC-32 of every file against the one recorded with its features.

    Raises
    ------
    FinetuningError
        Files have changed or are missing; they are counted, and the first are named.
    FileReadError
        The file system failed.
    """
    found = _threads().map(lambda picture: source_crc32(picture.path), pictures)
    faults = [
        f"{picture.path}: {'changed' if crc32 else 'missing'} since its features were extracted"
        for picture, crc32 in zip(pictures, found, strict=True)
        if crc32 != picture.crc32
    ]
    if faults:
        raise FinetuningError(_refusal(faults, len(pictures)))


def _refusal(faults: Sequence[str], pictures: int) -> str:
    return (
        f"{len(faults)} of {pictures} images do not match their features: "
        f"{'; '.join(faults[:_SHOWN])}; restore the files, or run `pipeline extract` and "
        "`pipeline train` of the head to fine-tune again"
    )


def _threads() -> ThreadPoolExecutor:
    """Return this process's threads for reading and decoding; a fork inherits none."""
    return _threads_of(os.getpid())


@cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0))), thread_name_prefix="read")
