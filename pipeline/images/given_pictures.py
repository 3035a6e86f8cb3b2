"""Images passed by callers: path, bytes of a file, Pillow image, array or tensor."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from pipeline.images.decoding.decode import decode
from pipeline.store.errors import UnexpectedType
from pipeline.store.one_or_many import items_of

GivenPicture = str | Path | bytes | Image.Image | np.ndarray | torch.Tensor
"""One image. `picture_of` states the accepted arrays and tensors."""

_EXPECTED = (
    "an image: a path (str or Path), the bytes of an image file, a Pillow image, an array "
    "(H, W, 3) or (H, W), or a tensor (3, H, W) or (H, W, 3), of uint8 or of floats from 0 to 1"
)


def pictures_of(given: GivenPicture | Iterable[GivenPicture]) -> tuple[list[GivenPicture], bool]:
    """Return the images that a caller passed, and whether it was a single one.

    An array or tensor of four axes holds images along the first.
    """
    if isinstance(given, str | Path | bytes | bytearray | Image.Image):
        return [given], True
    if isinstance(given, np.ndarray | torch.Tensor) and given.dtype != object and given.ndim < 4:
        return [given], True
    return items_of(given, _EXPECTED), False


def picture_of(given: GivenPicture) -> Path | Image.Image:
    """Return an image as a path or a Pillow image.

    Arrays are (H, W, 3) RGB or (H, W) grey; tensors are (3, H, W), (1, H, W), (H, W, 3) or (H, W).
    Integers are uint8; floats are finite, from 0 to 1, rounded to the nearest of 256 levels.
    """
    if isinstance(given, Image.Image):
        return given
    if isinstance(given, str | Path):
        return Path(given)
    if isinstance(given, bytes | bytearray):
        return decode(bytes(given))
    if isinstance(given, torch.Tensor):
        return _from_pixels(_channels_last(given.detach().cpu()), given.shape)
    if isinstance(given, np.ndarray):
        return _from_pixels(given, given.shape)
    raise UnexpectedType(f"found {type(given).__name__} {str(given)[:60]!r}; expected {_EXPECTED}")


def _channels_last(tensor: torch.Tensor) -> npt.NDArray:
    if tensor.dtype == torch.bfloat16:  # which numpy lacks
        tensor = tensor.float()
    array: npt.NDArray = tensor.numpy()
    if array.ndim != 3:
        return array
    first, last = array.shape[0] in (1, 3), array.shape[2] == 3
    # A tensor (3, n, 3) could be channels first or last.
    if first and last and array.shape[0] == 3:
        raise UnexpectedType(
            f"the channel axis of a tensor of shape {tuple(tensor.shape)} is ambiguous; pass a "
            "numpy array (H, W, 3), whose channels are last"
        )
    if last:
        return array
    return array[0] if array.shape[0] == 1 else array.transpose(1, 2, 0)


def _from_pixels(array: npt.NDArray, shape: Iterable[int]) -> Image.Image:
    kind = f"{array.dtype} of shape {tuple(shape)}"
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)) or not array.size:
        raise UnexpectedType(f"found {kind}; expected {_EXPECTED}")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):
            raise UnexpectedType(
                f"found {kind} with values from {low:g} to {high:g}; expected floats from 0 to 1, "
                "or uint8: for values from 0 to 255 pass array.astype('uint8')"
            )
        array = np.rint(array.astype(np.float64) * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise UnexpectedType(f"found {kind}; expected {_EXPECTED}")
    return Image.fromarray(np.ascontiguousarray(array))
