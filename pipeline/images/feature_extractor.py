"""Features of a few pictures, with nothing written to disk."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from pipeline.errors import PipelineError
from pipeline.images.batches import Parallelism, default_parallelism, feature_header, picture_rows
from pipeline.images.network import RecipeNetwork
from pipeline.images.weights import load_weights
from pipeline.progress import Stopwatch
from pipeline.recipes import resolve_recipe
from pipeline.shards.format import OK, STATUS_NAMES
from pipeline.shards.plan import Span


class PictureError(PipelineError):
    """A picture has no features: its file is missing, unreadable or refused."""


class FeatureExtractor:
    """An image recipe as a function from pictures to feature rows.

    Attributes
    ----------
    recipe : the `pipeline.recipes.Recipe` that is carried out.
    recipe_hash : 16 hex digits; features with the same hash, from shards or from here, are the
        same features.

    Examples
    --------
    >>> extractor = FeatureExtractor("resnet152-pool")
    >>> extractor(["a.jpg", "b.jpg"]).shape
    (2, 2048)
    """

    def __init__(
        self,
        recipe: str,
        weights: str | Path = "imagenet",
        device: str = "cpu",
        engine: str = "fast",
        precision: str = "float32",
        batch_size: int | None = None,
    ) -> None:
        """Build the network and load its weights.

        Parameters
        ----------
        recipe, weights, device, engine, precision, batch_size : see
            `pipeline.images.extract.extract`.

        Raises
        ------
        RecipeError, WeightsError, DeviceError
            The recipe, its weights or the device are not to be had.
        """
        self.recipe = resolve_recipe(recipe, precision)
        usual = default_parallelism(self.recipe, device)
        self._parallelism = Parallelism(
            batch_size or usual.batch_size, usual.threads, usual.readers
        )
        loaded = load_weights(self.recipe, str(weights))
        self._network = RecipeNetwork(self.recipe, loaded.state, device, engine)
        self.recipe_hash = feature_header(self.recipe, loaded, "").recipe_hash

    def __call__(self, pictures: Sequence[str | Path | Image.Image]) -> npt.NDArray[np.float32]:
        """Compute the features of some pictures.

        Parameters
        ----------
        pictures : files, or pictures that Pillow has opened; the two may be mixed.

        Returns
        -------
        (pictures, *recipe.shape) float32, in the order of the pictures: the rows that
        `pipeline.images.extract.extract` stores for the same files, as float32, when it computes
        them in the same batches; in others they agree within rounding.

        Raises
        ------
        PictureError
            A picture is missing, unreadable or refused; it is named, and no features are given.
        FileReadError
            The system, not a file, is at fault.
        """
        given = [p if isinstance(p, Image.Image) else Path(p) for p in pictures]
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
                    raise PictureError(_message(given[row], row, STATUS_NAMES[status], reason))
            rows[first_row : first_row + len(block)] = block.features
        return rows


def _message(picture: Path | Image.Image, row: int, status: str, reason: str) -> str:
    name = picture if isinstance(picture, Path) else getattr(picture, "filename", "") or "a picture"
    return (
        f"{name} (number {row} of the given, from 0) is {status}: {reason}; give pictures that can "
        "be decoded"
    )
