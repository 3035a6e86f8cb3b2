"""Audio recipes: bags of sound words, defined by their names, and a pretrained network."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from pipeline.clips.sound.mfcc import Mfcc
from pipeline.clips.sound.read_sound import DECODING
from pipeline.store.errors import UnknownName

Norm = Literal["l1", "l2", "root", "counts"]

_NAME = re.compile(
    r"mfcc-bow-(?P<words>[1-9][0-9]{0,5})(?P<soft>-soft)?(?P<halves>-halves)?"
    rf"(?:-(?P<norm>{'|'.join(get_args(Norm))}))?"
)
EXAMPLE = "mfcc-bow-1024"
BIRDNET = "birdnet"


@dataclass(frozen=True)
class BagRecipe:
    """A bag of sound words."""

    name: str
    """`mfcc-bow-<words>[-soft][-halves][-<norm>]`."""
    words: int
    """Number of words in the codebook."""
    soft: bool = False
    """Whether a window counts for its four nearest words, each with half the weight of the previous
    one, instead of only for the nearest."""
    halves: bool = False
    """Whether the first and the second half of the windows have separate, concatenated bags, which
    preserve the temporal order."""
    norm: Norm = "l1"
    """Normalisation of each bag: "l1" (sum 1), "l2" (norm 1), "root" (square root of "l1") or
    "counts" (none). An empty bag stays zero."""
    mfcc: Mfcc = field(default_factory=Mfcc)

    storage: ClassVar[str] = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return (self.words * (2 if self.halves else 1),)

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines a row, except the codebook, as JSON values."""
        return {"media": "sound", "decode": DECODING, **asdict(self)}


@dataclass(frozen=True)
class SoundNetworkRecipe:
    """Kahl et al. 2021, BirdNET 2.4: trained to classify 6,522 birds, frogs, insects and noises.

    A row is the mean over windows; a file without sound has a row of zeros.
    """

    name: str = BIRDNET
    rate: int = 48_000
    """Sampling rate in Hz."""
    window: int = 144_000
    """Samples. Windows do not overlap, except for the last one, which ends with the sound; a
    shorter sound is zero-padded."""
    tap: str = "model/GLOBAL_AVG_POOL/Mean"
    """Layer that is read, the mean over the last map."""
    shape: tuple[int, ...] = (1024,)

    storage: ClassVar[str] = "float32"

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines a row, except the weights, as JSON values."""
        return {"media": "sound", "decode": DECODING, **asdict(self)}


AnySoundRecipe = BagRecipe | SoundNetworkRecipe


@dataclass(frozen=True)
class RowMaker:
    """Computes the row of a sound."""

    recipe: AnySoundRecipe
    recorded: dict[str, Any]  # the recipe as it is recorded in shards
    rate: int  # sampling rate of the sound in Hz
    weights: str  # name of the codebook or network
    weights_sha256: str
    row: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]  # from (samples,)


def is_sound_recipe(name: str) -> bool:
    """Return whether a name has the form of an audio recipe."""
    return name.startswith("mfcc-") or name == BIRDNET


def sound_recipe(name: str) -> AnySoundRecipe:
    """Return an audio recipe by its name."""
    return SoundNetworkRecipe() if name == BIRDNET else bag_recipe(name)


def bag_recipe(name: str) -> BagRecipe:
    """Return a recipe of bags of sound words by its name."""
    if (match := _NAME.fullmatch(name)) is None:
        raise UnknownName(
            f"the audio recipe {name!r} is unknown; expected {BIRDNET}, or a name like {EXAMPLE}, "
            f"followed by -soft, -halves and one of {', '.join(get_args(Norm))}, all optional, "
            "in this order"
        )
    norm: Norm = match["norm"] or "l1"  # type: ignore[assignment]
    words, soft, halves = int(match["words"]), bool(match["soft"]), bool(match["halves"])
    return BagRecipe(name, words, soft, halves, norm)
