"""Recipes of sound: bags of sound words, by what their names say, and a learned network."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from pipeline.recipes import UnknownRecipe
from pipeline.sound.mfcc import Mfcc
from pipeline.sound.read_sound import DECODING

Norm = Literal["l1", "l2", "root", "counts"]

_NAME = re.compile(
    r"mfcc-bow-(?P<words>[1-9][0-9]{0,5})(?P<soft>-soft)?(?P<halves>-halves)?"
    rf"(?:-(?P<norm>{'|'.join(get_args(Norm))}))?"
)
EXAMPLE = "mfcc-bow-1024"
BIRDNET = "birdnet"


@dataclass(frozen=True)
class BagRecipe:
    """How a bag of sound words is made from a file.

    Attributes
    ----------
    name : `mfcc-bow-<words>[-soft][-halves][-<norm>]`.
    words : of the codebook.
    soft : whether a window counts for its four nearest words, by halves of the weight of the one
        before, and not for the nearest alone.
    halves : whether the first and the second half of the windows have a bag each, side by side: so
        the row knows what was heard before what.
    norm : of each bag: "l1" makes its sum 1, "l2" its length; "root" takes the root of every number
        of the former; "counts" leaves them. An empty bag stays one of zeros.
    mfcc : of the windows.
    """

    name: str
    words: int
    soft: bool = False
    halves: bool = False
    norm: Norm = "l1"
    mfcc: Mfcc = field(default_factory=Mfcc)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row."""
        return (self.words * (2 if self.halves else 1),)

    @property
    def storage(self) -> str:
        """Type of the stored rows."""
        return "float32"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, which is float32."""
        return 4 * self.shape[0]

    def to_json(self) -> dict[str, Any]:
        """Return all that changes a row as JSON values, less the codebook."""
        return {"media": "sound", "decode": DECODING, **asdict(self)}


@dataclass(frozen=True)
class SoundNetworkRecipe:
    """Kahl et al. 2021, BirdNET 2.4: trained to tell 6,522 birds, frogs, insects and noises apart.

    Attributes
    ----------
    name : as on the command line.
    rate : samples a second.
    window : samples that the network hears at once. Windows do not overlap but for the last one,
        which ends with the sound; a shorter sound is followed by silence.
    tap : the layer that is read, the mean over the last map; a row is its mean over windows. The
        row of a file without sound is zeros.
    shape : of a row, float32.
    """

    name: str = BIRDNET
    rate: int = 48_000
    window: int = 144_000
    tap: str = "model/GLOBAL_AVG_POOL/Mean"
    shape: tuple[int, ...] = (1024,)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return 4 * self.shape[0]

    @property
    def storage(self) -> str:
        """Type of the stored rows."""
        return "float32"

    def to_json(self) -> dict[str, Any]:
        """Return all that changes a row as JSON values, less the weights."""
        return {
            "name": self.name,
            "media": "sound",
            "decode": DECODING,
            "rate": self.rate,
            "window": self.window,
            "tap": self.tap,
            "shape": list(self.shape),
        }


AnySoundRecipe = BagRecipe | SoundNetworkRecipe


def is_sound_recipe(name: str) -> bool:
    """Tell whether a name is meant as one of sound."""
    return name.startswith("mfcc-") or name == BIRDNET


def sound_recipe(name: str) -> AnySoundRecipe:
    """Return the recipe of a name.

    Raises
    ------
    RecipeError
        It says something else.
    """
    return SoundNetworkRecipe() if name == BIRDNET else bag_recipe(name)


def bag_recipe(name: str) -> BagRecipe:
    """Return the recipe of bags of sound words of a name.

    Raises
    ------
    RecipeError
        It says something else.
    """
    if (found := _NAME.fullmatch(name)) is None:
        raise UnknownRecipe(
            f"no recipe of sound is called {name!r}; one is called such as {EXAMPLE}, with -soft, "
            f"-halves and one of {', '.join(get_args(Norm))} after it, in this order; there is "
            f"{BIRDNET}, too"
        )
    norm: Norm = found["norm"] or "l1"  # type: ignore[assignment]
    words, soft, halves = int(found["words"]), bool(found["soft"]), bool(found["halves"])
    return BagRecipe(name, words, soft, halves, norm)
