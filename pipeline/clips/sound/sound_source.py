"""Sounds of clips or sound files as rows of a feature set."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from pipeline.clips.clip_file import clip_crc32
from pipeline.clips.sound.codebooks import sounds_of
from pipeline.clips.sound.network import load_sound_network
from pipeline.clips.sound.read_sound import Sound
from pipeline.clips.sound.recipes import AnySoundRecipe, BagRecipe, RowMaker
from pipeline.clips.sound.words import bags, load_sound_words
from pipeline.images.networks import WeightsError
from pipeline.store.files import created_by
from pipeline.store.jobs.feature_source import FeatureSource
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.origins import Files
from pipeline.store.progress import FORWARD, Stopwatch
from pipeline.store.shards.format import FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.shards.row_keys import RowNumbers
from pipeline.store.workers.shipping import Ship

LENGTHS_DIFFER = 0.5
"""Difference in seconds between the lengths of sound and video that is reported."""


@dataclass(frozen=True)
class SoundSource:
    """Sounds as a `pipeline.store.jobs.feature_source.FeatureSource`."""

    header: FeatureHeader
    ids: Sequence[str]
    files: Sequence[Path]
    maker: RowMaker
    codebook: Path | None  # file from which workers load the maker's; None for a network
    how: Compute  # options of the caller
    lengths: dict[str, tuple[float, float]] = field(default_factory=dict, compare=False)
    """Receives the seconds of sound and of video, by id, if they differ."""
    unit: str = "clip"
    gpu: bool = False

    @property
    def origin(self) -> Files:
        """The files."""
        return Files(self.files, "clips", clip_crc32, self._threads)

    @property
    def _threads(self) -> int:
        return self.how.threads or len(os.sched_getaffinity(0))

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Compute the sounds of some spans, with prefetch."""
        rows = (row for span in spans for row in range(span.start, span.stop))
        for row, sound in sounds_of(rows, self.files, self.maker.rate, self._threads):
            with watch.timing(FORWARD):
                block = sound_block(sound, self.maker)
            self._note_lengths(self.ids[row], sound)
            yield row, block

    def part(
        self, rows: RowNumbers, threads: int | None, ship: Ship
    ) -> Callable[[], FeatureSource]:
        """Return the source of some sounds on a worker, which loads the codebook once."""
        return partial(
            _part,
            self.maker.recipe,
            None if self.codebook is None else self.codebook.absolute(),
            Compute(threads=self.how.threads or threads or 1),
            self.header.dataset,
            [self.ids[row] for row in rows.tolist()],
            [self.files[row].absolute() for row in rows.tolist()],
        )

    def _note_lengths(self, row: str, sound: Sound) -> None:
        if sound.samples is None or not len(sound.samples) or sound.seconds is None:
            return
        heard = len(sound.samples) / self.maker.rate
        if abs(heard - sound.seconds) > LENGTHS_DIFFER:
            self.lengths[row] = heard, sound.seconds


def _part(
    recipe: AnySoundRecipe,
    codebook: Path | None,
    how: Compute,
    dataset: str,
    ids: Sequence[str],
    files: Sequence[Path],
) -> SoundSource:
    """Build the source of some sounds on a worker."""
    maker = _maker_on_worker(recipe, codebook)
    return SoundSource(sound_header(maker, dataset), ids, files, maker, codebook, how)


def row_maker(recipe: AnySoundRecipe, codebook: Path | None) -> RowMaker:
    """Return the object that computes the rows of a recipe; bags need the file of a codebook."""
    if not isinstance(recipe, BagRecipe):
        return load_sound_network()
    if codebook is None:
        raise WeightsError(f"{recipe.name} needs a codebook; pass its file")
    words = load_sound_words(codebook)
    words.require(recipe, str(codebook))
    return bags(recipe, words)


_maker_on_worker = lru_cache(maxsize=1)(row_maker)


def sound_header(maker: RowMaker, dataset: str) -> FeatureHeader:
    """Return the header of these rows."""
    return FeatureHeader(
        recipe=maker.recorded,
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
