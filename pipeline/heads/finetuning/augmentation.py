"""Random crops and mirrors, drawn for each image and epoch independently."""

import math
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.images.recipes import Recipe, Resize
from pipeline.images.transforms import resize_image

Box = tuple[int, int, int, int]

_LEAST_ASPECT, _MOST_ASPECT = 3 / 4, 4 / 3
_ATTEMPTS = 10


@dataclass(frozen=True)
class Augmentation:
    """Parameters of the random crops."""

    seed: int
    smallest_crop: float  # minimum share of an image's area, in (0, 1]

    def generator(self, epoch: int, image_id: str) -> np.random.Generator:
        """Return the generator of an image in an epoch, independent of order and workers."""
        return np.random.default_rng([self.seed, epoch, zlib.crc32(image_id.encode())])


def random_crop(width: int, height: int, smallest_crop: float, rng: np.random.Generator) -> Box:
    """Return a random crop (left, top, right, bottom) in pixels.

    The training crop of GoogLeNet (Szegedy et al. 2015, section 6) with the constants of
    torchvision's RandomResizedCrop, as in the program of VSE++: area uniform from `smallest_crop`
    to 1 of the image's, aspect log-uniform from 3/4 to 4/3, position uniform. After ten draws that
    do not fit, the largest centred crop with an aspect in this range.
    """
    for _ in range(_ATTEMPTS):
        area = rng.uniform(smallest_crop, 1.0) * width * height
        aspect = math.exp(rng.uniform(math.log(_LEAST_ASPECT), math.log(_MOST_ASPECT)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * _MOST_ASPECT)))
    h = min(height, max(1, round(width / _LEAST_ASPECT)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def augmented(
    picture: Image.Image, recipe: Recipe, smallest_crop: float, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Return a random crop in the network's size, mirrored at random: (size, size, 3) uint8."""
    crop = picture.crop(random_crop(*picture.size, smallest_crop, rng))
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    resize = recipe.resize
    square = Resize("squash", recipe.crop.size, resize.interpolation, resize.antialias)
    return resize_image(crop, square)
