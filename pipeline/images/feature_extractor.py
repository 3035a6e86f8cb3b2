"""In-memory features of a few images."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import nn

from pipeline.images.batches import default_parallelism, feature_header, picture_rows
from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.encoder import Preprocess, WindowNetwork, unusable
from pipeline.images.given_pictures import GivenPicture, picture_of, pictures_of
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.store.devices import AUTO, choose_precision
from pipeline.store.progress import QUIET, Stopwatch
from pipeline.store.shards.format import OK
from pipeline.store.shards.plan import Span


class FeatureExtractor:
    """An image recipe as a function from images to feature rows.

    As `pipeline.extract`, but in memory and for a few images; all calls share one network.

    Attributes
    ----------
    recipe : `pipeline.images.recipes.Recipe`. Recipe of the features.
    recipe_hash : str. Hash of recipe and weights, 16 hex digits; equal hashes, here and in shards,
        mean equal features.
    preprocess : `pipeline.images.encoder.Preprocess`. Picklable function of one image, in any form,
        that returns its windows, a tensor (windows, h, w, 3) of uint8.
    network : `torch.nn.Module`. Maps a batch of windows (n, windows, h, w, 3) to feature rows (n,
        *recipe.shape) float32. On one thread, with the same batches and engine, rows are those of
        the shards bit for bit; otherwise they agree up to rounding. The reference engine has
        gradients: of the input, if it is a float tensor of 0 to 255, and of the weights after
        `requires_grad_()`, which changes this extractor's rows too.

    Examples
    --------
    >>> extractor = FeatureExtractor("efficientnet-lite0-pool")
    >>> extractor("tests/a.jpg").shape  # doctest: +SKIP
    (1280,)
    >>> extractor(["tests/a.jpg", "tests/b.jpg"]).shape  # doctest: +SKIP
    (2, 1280)
    >>> extractor(np.zeros((480, 640, 3), np.uint8)).shape
    (1280,)
    >>> extractor([]).shape
    (0, 1280)
    """

    def __init__(
        self,
        recipe: str,
        weights: str | Path = "imagenet",
        device: str = AUTO,
        engine: str = "fast",
        precision: str = "float32",
        batch_size: int | None = None,
        weights_prefix: str | None = None,
    ) -> None:
        """Build the network and load its weights.

        Parameters
        ----------
        recipe : str. Name of an image recipe; see `pipeline.RECIPES`.
        weights : str or Path. "imagenet", a checkpoint, or "random:SEED".
        device : str. A torch device.
        engine : str. "fast" or "reference".
        precision : str. Arithmetic of the network, of `pipeline.images.recipes.PRECISIONS`, or
            "auto" for the fastest of the device.
        batch_size : int or None. Images per batch; None: the default of the device.
        weights_prefix : str or None. Names of a checkpoint with several networks that are used,
            such as "teacher."; None: those that fit.

        Raises
        ------
        RecipeError, WeightsError, DeviceError
            The recipe, its weights or the device are not available.
        """
        self.recipe: Recipe = resolve_recipe(recipe, choose_precision(precision, device, QUIET))
        usual = default_parallelism(self.recipe, device)
        self._parallelism = replace(usual, batch_size=batch_size or usual.batch_size)
        loaded = load_weights(self.recipe, str(weights), weights_prefix)
        self._network = RecipeNetwork(self.recipe, loaded.state, device, engine)
        self.preprocess: Preprocess = Preprocess(self.recipe, self._network.window)
        self.network: nn.Module = WindowNetwork(self._network, engine == "reference")
        self.recipe_hash: str = feature_header(self.recipe, loaded, "").recipe_hash

    def __call__(self, pictures: GivenPicture | Iterable[GivenPicture]) -> npt.NDArray[np.float32]:
        """Compute the features of one image, or of several.

        Parameters
        ----------
        pictures : image or iterable of images. An image is a path (str or Path), the bytes of an
            image file, a Pillow image, an array (H, W, 3) or (H, W), or a tensor (3, H, W) or
            (H, W, 3), of uint8 or of floats from 0 to 1. Kinds may be mixed; an array or tensor of
            four axes holds several images.

        Returns
        -------
        numpy.ndarray
            (*recipe.shape) float32 of a single image, (n, *recipe.shape) of several, in their
            order. Equal to the rows of `pipeline.extract` if the batches are the same, otherwise
            within rounding.

        Raises
        ------
        UnexpectedType
            A value is not an image.
        WrongUsage
            An image is missing, unreadable or refused; it is named, and no features are returned.
        FileReadError
            The file system failed, not a file.
        """
        several, alone = pictures_of(pictures)
        given = [_opened(picture, row) for row, picture in enumerate(several)]
        rows = np.empty((len(given), *self.recipe.shape), np.float32)
        if not given:
            return rows
        usual = self._parallelism
        parallelism = replace(usual, batch_size=min(usual.batch_size, len(given)))
        for first_row, block in picture_rows(
            [Span(0, len(given))], given, self._network, parallelism, Stopwatch()
        ):
            for row, (status, reason) in enumerate(
                zip(block.status, block.errors, strict=True), first_row
            ):
                if status != OK:
                    raise unusable(given[row], status, reason, _number(row))
            rows[first_row : first_row + len(block)] = block.features
        return rows[0] if alone else rows


def encoder(
    recipe: str,
    weights: str | Path = "imagenet",
    device: str = AUTO,
    engine: str = "fast",
    precision: str = "float32",
    weights_prefix: str | None = None,
) -> FeatureExtractor:
    """Return an image recipe as preprocessing and a torch module, for your own loop.

    Parameters
    ----------
    recipe, weights, device, engine, precision, weights_prefix : see `pipeline.FeatureExtractor`.

    Returns
    -------
    FeatureExtractor
        With its attributes `preprocess`, for the workers of a DataLoader, and `network`.

    Examples
    --------
    >>> encoder = pipeline.encoder("efficientnet-lite0-pool", engine="reference")
    >>> windows = encoder.preprocess(np.zeros((480, 640, 3), np.uint8))
    >>> windows.shape, windows.dtype
    (torch.Size([1, 224, 224, 3]), torch.uint8)
    >>> encoder.network(windows[None]).shape
    torch.Size([1, 1280])
    """
    return FeatureExtractor(
        recipe, weights, device, engine, precision, weights_prefix=weights_prefix
    )


def _opened(picture: GivenPicture, row: int) -> Path | Image.Image:
    try:
        return picture_of(picture)
    except UnusableImage as error:
        raise unusable(picture, error.status, str(error), _number(row)) from error


def _number(row: int) -> str:
    return f" (number {row} of the images passed, from 0)"
