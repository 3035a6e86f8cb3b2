"""The two halves of an image encoder, for a loop of one's own: preprocessing and network."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.images.decoding.decode import UnusableImage
from pipeline.images.given_pictures import GivenPicture, picture_of
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Crop, Recipe, RecipeError
from pipeline.images.transforms import read_sample
from pipeline.store.errors import WrongUsage
from pipeline.store.shards.format import STATUS_NAMES


@dataclass(frozen=True)
class Preprocess:
    """An image in any form that `FeatureExtractor` accepts -> its windows; picklable."""

    recipe: Recipe
    window: Crop  # the recipe's crop, or none if the network itself shares ten crops

    def __call__(self, picture: GivenPicture) -> Tensor:
        """Return (windows, h, w, 3) uint8 RGB of one image.

        Raises
        ------
        UnexpectedType
            The value is not an image.
        WrongUsage
            The image is missing, unreadable or refused.
        FileReadError
            The file system failed, not a file.
        """
        try:
            sample = read_sample(picture_of(picture), self.recipe, self.window)
        except UnusableImage as error:
            raise unusable(picture, error.status, str(error)) from error
        if sample.windows is None:
            raise unusable(picture, sample.status, sample.error)
        return torch.from_numpy(sample.windows)


class WindowNetwork(nn.Module):
    """A recipe's network: windows of `Preprocess` in, feature rows out.

    It is always in evaluation mode, and its weights are frozen until `requires_grad_`.
    """

    def __init__(self, network: RecipeNetwork, gradients: bool) -> None:
        """Wrap a network that other callers may use; it has `gradients` or none."""
        super().__init__()
        self._rows, self._gradients = network.rows, gradients
        self._name, self._device = network.recipe.name, network.device
        self.trunk = network.trunk
        self.eval()

    def train(self, mode: bool = True) -> "WindowNetwork":
        """Record the mode; every layer stays in evaluation mode."""
        super().train(False)
        self.training = mode
        return self

    def forward(self, windows: Tensor) -> Tensor:
        """Return (n, *recipe.shape) float32 of (n, windows, h, w, 3) uint8, or float, 0 to 255."""
        device = next((weight.device for weight in self.parameters()), self._device)
        if self._gradients:
            return self._rows(windows.to(device))
        if windows.requires_grad:
            raise RecipeError(
                f"{self._name}: the windows require gradients, which the fast engine does not "
                'compute; build the encoder with engine="reference"'
            )
        # Not inference mode, whose tensors autograd refuses in the layers of others.
        with torch.no_grad():
            return self._rows(windows.to(device))


def unusable(picture: GivenPicture, status: int, reason: str, number: str = "") -> WrongUsage:
    """Return the error for an image without features."""
    name = getattr(picture, "filename", "") or "an image"
    if isinstance(picture, str | Path):
        name = str(picture)
    return WrongUsage(
        f"{name}{number} is {STATUS_NAMES[status]}: {reason}; pass images that can be decoded"
    )
