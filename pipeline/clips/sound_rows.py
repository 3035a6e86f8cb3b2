"""Rows of sound: what makes them, their header and their blocks."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.clips.sound import Sound
from pipeline.clips.sound_network import load_sound_network
from pipeline.clips.sound_recipes import AnySoundRecipe, BagRecipe
from pipeline.clips.sound_words import Bags, SoundWordsError, load_sound_words
from pipeline.files import created_by
from pipeline.shards.format import FeatureHeader, RowBlock


class RowMaker(Protocol):
    """Makes the row of a sound: `pipeline.clips.sound_words.Bags`, or a network.

    Attributes
    ----------
    recipe : of the rows.
    rate : samples a second.
    weights, weights_sha256 : name and SHA-256 of what was fitted.
    """

    @property
    def recipe(self) -> AnySoundRecipe: ...
    @property
    def rate(self) -> int: ...
    @property
    def weights(self) -> str: ...
    @property
    def weights_sha256(self) -> str: ...
    def recipe_json(self) -> dict[str, Any]: ...
    def row(self, sound: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]: ...


def row_maker(recipe: AnySoundRecipe, codebook: Path | None) -> RowMaker:
    """Return what makes the rows of a recipe.

    Parameters
    ----------
    recipe : of bags of sound words, or of a network.
    codebook : file of the words; None of a network.

    Raises
    ------
    SoundWordsError
        There is no such codebook, or it is of other words.
    NoSoundNetwork
        The network is not installed.
    """
    if not isinstance(recipe, BagRecipe):
        return load_sound_network()
    if codebook is None:
        raise SoundWordsError(f"{recipe.name} needs a codebook; give its file")
    words = load_sound_words(codebook)
    words.require(recipe, str(codebook))
    return Bags(recipe, words)


def sound_header(maker: RowMaker, dataset: str) -> FeatureHeader:
    """Return the header of the shards of these rows."""
    return FeatureHeader(
        recipe=maker.recipe_json(),
        weights=maker.weights,
        weights_sha256=maker.weights_sha256,
        axes="row, channel",
        dataset=dataset,
        row_shape=maker.recipe.shape,
        dtype=maker.recipe.storage,
        created_by=created_by("av", "numpy", "scipy", "h5py"),
    )


def sound_block(sound: Sound, maker: RowMaker) -> RowBlock:
    """Return the row of a file, with its status and reason."""
    nothing = np.full(maker.recipe.shape, np.nan, np.float32)
    row = nothing if sound.samples is None else maker.row(sound.samples)
    return RowBlock(
        row[None],
        np.array([sound.status], np.uint8),
        (sound.reason,),
        np.array([sound.source_crc32], np.uint32),
    )
