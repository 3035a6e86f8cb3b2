"""Clip recipes: frames, network, and the reduction of its outputs to one row.

`<image recipe>` or `<3-D recipe>`, then, unless default, `@<frames>` and the reduction over time:
`efficientnet-lite0-pool@even:8-halves`.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipeline.clips.frames import DECODING
from pipeline.clips.sampling import Sampling
from pipeline.clips.sound.recipes import AnySoundRecipe, is_sound_recipe, sound_recipe
from pipeline.images.concatenated_recipes import split_name
from pipeline.images.recipes import (
    DEFAULT_RECIPE,
    PRECISIONS,
    RECIPES,
    STORAGES,
    Normalise,
    Recipe,
    RecipeError,
    is_image_recipe,
    resolve_recipe,
)
from pipeline.store.errors import UnknownName, WrongUsage
from pipeline.store.wording import did_you_mean

Over = Literal["mean", "max", "halves"]
PARTS: dict[Over, int] = {"mean": 1, "max": 1, "halves": 2}
"""Number of temporal parts that are reduced separately and concatenated."""

FRAMES = "every:0.5"
"""Default frames of image recipes."""

_KINETICS = Normalise(255.0, (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989))
# Caffe's C3D subtracts the mean over its training clips, a cube that is not in the weights; here it
# is the mean of each channel, as in ports to torch.
_SPORTS = Normalise(1.0, (90.0, 98.0, 102.0), (1.0, 1.0, 1.0), "BGR")


@dataclass(frozen=True, slots=True)
class VolumeRecipe:
    """A 3-D network for runs of frames; other fields as in `pipeline.images.recipes.Recipe`."""

    name: str
    backbone: str
    weights: str
    frames: str
    """Default frames."""
    canvas: tuple[int, int]
    """(height, width) that a frame is squashed to, bilinearly without antialiasing, as in
    torchvision's `VideoClassification`."""
    crop: int
    """Side of the centre crop."""
    normalise: Normalise
    tap: str
    activation: Literal["relu", "none"]
    shape: tuple[int, ...]
    run: int = 16
    """Frames per input. Runs do not overlap, except for the last one, which ends with the clip; the
    last frame of a shorter clip is repeated."""
    axes: str = "row, channel"
    precision: str = "float32"
    storage: str = "float32"
    source: str = ""
    trained_on: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines a feature, except the weights in use, as JSON."""
        values = asdict(self)
        for name in ("weights", "source", "trained_on", "frames"):
            del values[name]
        return values


def _torchvision(
    backbone: str, weights: str, size: int, canvas: tuple[int, int], crop: int
) -> VolumeRecipe:
    return VolumeRecipe(
        f"{backbone}-pool", backbone, f"torchvision:{weights}.KINETICS400_V1", "fps:15", canvas,
        crop, _KINETICS, "avgpool", "none", (size,), source="torchvision's evaluation, runs of 16",
        trained_on=("Kinetics-400",),
    )  # fmt: skip


def _c3d(layer: str) -> VolumeRecipe:
    return VolumeRecipe(
        f"c3d-{layer}", "c3d", "c3d:no address", "all", (128, 171), 112, _SPORTS, layer, "relu",
        (4096,), source="Tran 2015, Dong 2018", trained_on=("Sports-1M",),
    )  # fmt: skip


VOLUMES: dict[str, VolumeRecipe] = {
    r.name: r
    for r in (
        _torchvision("r3d_18", "R3D_18_Weights", 512, (128, 171), 112),
        _torchvision("mc3_18", "MC3_18_Weights", 512, (128, 171), 112),
        _torchvision("r2plus1d_18", "R2Plus1D_18_Weights", 512, (128, 171), 112),
        _torchvision("s3d", "S3D_Weights", 1024, (256, 256), 224),
        _c3d("fc6"),
        _c3d("fc7"),
    )
}
_DEFAULT_VOLUME = {r.backbone: name for name, r in reversed(VOLUMES.items())}


@dataclass(frozen=True, slots=True)
class ClipRecipe:
    """A clip recipe: from one clip to one row."""

    name: str
    network: Recipe | VolumeRecipe
    """Recipe for a frame, or for a run of frames."""
    frames: str
    """Sampling rule of `pipeline.clips.sampling.Sampling`."""
    over: Over
    """Reduction over time: mean, maximum, or "halves": the means of outputs that start in the first
    and in the second half of the clip, concatenated; an empty half repeats the previous."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        *cells, channels = self.network.shape
        return (*cells, channels * PARTS[self.over])

    @property
    def storage(self) -> str:
        """Dtype of stored rows."""
        return self.network.storage

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines a feature, except the weights in use, as JSON."""
        clip = {"decode": DECODING, "frames": self.frames, "over_frames": self.over}
        return {**self.network.to_json(), "name": self.name, "shape": self.shape, "clip": clip}


def recipe_of_clips(
    name: str, precision: str = "float32", storage: str = "float32"
) -> ClipRecipe | AnySoundRecipe:
    """Return a clip recipe by its name; audio rows are always float32."""
    if is_sound_recipe(name):
        return sound_recipe(name)
    return resolve_clip_recipe(name, precision, storage)


def named_with(name: str, frames: str | None, over: str | None) -> str:
    """Return the name of a recipe with other frames or another reduction over time."""
    if frames is None and over is None:
        return name
    if "@" in name:
        raise WrongUsage(
            f"{name!r} already names its frames; leave out `frames=...` and `over_frames=...`"
        )
    frames = frames or _usual_frames(_network(name, "float32", "float32"))
    return f"{name}@{frames}" + ("" if over in (None, "mean") else f"-{over}")


def resolve_clip_recipe(
    name: str, precision: str = "float32", storage: str = "float32"
) -> ClipRecipe:
    """Return a clip recipe by its name.

    `name` is that of an image recipe or a backbone, or a key of `VOLUMES` or its backbone;
    optionally followed by "@" and a sampling rule, and "-max" or "-halves".
    """
    network_name, at, rest = name.partition("@")
    network = _network(network_name, precision, storage)
    if not at:
        return ClipRecipe(network.name, network, _usual_frames(network), "mean")
    frames, _, ending = rest.partition("-")
    over: Over | None = {"": "mean", "max": "max", "halves": "halves"}.get(ending)  # type: ignore[assignment]
    if over is None:
        raise RecipeError(
            f"{name!r} has the unknown reduction {ending!r}; expected -max or -halves, or nothing "
            "for the mean"
        )
    return ClipRecipe(f"{network.name}@{rest}", network, Sampling(frames).rule, over)


def names_with(name: str, frames: str | None, over: str | None) -> str:
    """Return a recipe's name, or several joined by "+", with other frames; audio is unchanged."""
    together = split_name(name)
    if together is None:
        return name if is_sound_recipe(name) else named_with(name, frames, over)
    names = (n if is_sound_recipe(n) else named_with(n, frames, over) for n in together.recipes)
    return f"{together.scaling}:{'+'.join(names)}"


def _usual_frames(network: Recipe | VolumeRecipe) -> str:
    return network.frames if isinstance(network, VolumeRecipe) else FRAMES


def _network(name: str, precision: str, storage: str) -> Recipe | VolumeRecipe:
    key = _DEFAULT_VOLUME.get(name, name)
    if key not in VOLUMES:
        if ":" not in name and not is_image_recipe(DEFAULT_RECIPE.get(name, name)):
            names = [*VOLUMES, *RECIPES]
            hint = did_you_mean(name, names, "pipeline list recipes")
            raise UnknownName(f"no recipe of clips is called {name!r}; {hint}")
        return resolve_recipe(name, precision, storage)
    for what, value, values in (
        ("precision", precision, PRECISIONS),
        ("storage", storage, STORAGES),
    ):
        if value not in values:
            raise RecipeError(f"{what} {value!r} is unknown; expected one of {', '.join(values)}")
    return replace(VOLUMES[key], precision=precision, storage=storage)
