"""A recipe's network on a device: 8-bit crops in, feature rows out. The plain reference."""

import torch
from torch import Tensor

from pipeline.images.backbones import BACKBONES
from pipeline.recipes import Recipe, RecipeError

_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class FeatureNetwork:
    """A recipe's network on a device: 8-bit crops in, feature rows out. The plain reference."""

    def __init__(self, recipe: Recipe, state: dict[str, Tensor], device: str = "cpu") -> None:
        """Build the network and give it its weights.

        Parameters
        ----------
        recipe : its `backbone`, `normalise`, `activation`, `pool` and `combine_crops` are
            carried out here, in the arithmetic of its `precision`.
        state : a complete state dict of the backbone; see `pipeline.images.weights`.
        device : a torch device. TF32 is switched on or off for the whole process.

        Raises
        ------
        RecipeError
            TF32 on a device that has none, or a device that is not there.
        """
        self.recipe = recipe
        self.device = usable_device(device, recipe)
        self._tap = BACKBONES[recipe.backbone].tap
        self._dtype = _DTYPES[recipe.precision]
        with torch.device("meta"):
            net = BACKBONES[recipe.backbone].build()
        net.load_state_dict(state, assign=True)
        self._net = net.eval().requires_grad_(False).to(self.device, self._dtype)
        normalise = recipe.normalise
        self._mean = torch.tensor(normalise.mean, device=self.device).view(1, 3, 1, 1)
        self._std = torch.tensor(normalise.std, device=self.device).view(1, 3, 1, 1)
        tf32 = recipe.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32

    def normalised(self, crops: Tensor) -> Tensor:
        """Return (n, 3, size, size) float32 input of (n, size, size, 3) uint8 crops."""
        x = crops.to(self.device).permute(0, 3, 1, 2).float().contiguous()
        return x.div(self.recipe.normalise.scale).sub(self._mean).div(self._std)

    @torch.inference_mode()
    def __call__(self, crops: Tensor) -> Tensor:
        """Return features (images, *recipe.shape) float32 on the CPU.

        Parameters
        ----------
        crops : (images, crops, size, size, 3) uint8.
        """
        images, per_image = crops.shape[:2]
        x = self._tap(self._net, self.normalised(crops.flatten(0, 1)).to(self._dtype), self.recipe)
        x = x.float()
        if x.ndim == 4:
            x = x.permute(0, 2, 3, 1)
            if self.recipe.pool == "mean over cells":
                x = x.mean(dim=(1, 2))
        x = x.unflatten(0, (images, per_image))
        x = x.mean(dim=1) if self.recipe.combine_crops == "mean" else x.squeeze(1)
        return x.contiguous().cpu()


def usable_device(name: str, recipe: Recipe) -> torch.device:
    """Return the torch device of that name, if it is there and can compute the recipe.

    Raises
    ------
    RecipeError
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RecipeError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}); "
            f"CUDA devices found: {torch.cuda.device_count()}; try --device cpu"
        ) from error
    if recipe.precision == "tf32" and device.type != "cuda":
        raise RecipeError(f"precision tf32 needs a CUDA device, not {name!r}; use float32")
    return device
