"""The job of `pipeline extract` for recipes of sound: files become rows of what is heard."""

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.cluster.place import Place
from pipeline.datasets.manifest import read_manifest
from pipeline.errors import WrongUsage
from pipeline.jobs.make_features import make_features
from pipeline.jobs.options import Compute, Selection, Storage
from pipeline.progress import QUIET, Monitor
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK
from pipeline.shards.index import FeatureIndex
from pipeline.sound.codebooks import codebook_for
from pipeline.sound.recipes import BagRecipe, sound_recipe
from pipeline.sound.sound_source import SoundSource, row_maker, sound_header

_FIT_SPLIT, _SEED = "train", 0
_ROWS_AT_ONCE = 1024
_SHOWN = 5


def extract_sound(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
    select: Selection | None = None,
    storage: Storage | None = None,
    compute: Compute | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract features of the sound of a dataset's clips, or files of sound, into shards.

    A file without sound, or with less of it than one window, has a row of zeros; a line counts
    them. A file that is missing or cannot be decoded keeps its row, with a status and a reason. See
    `pipeline.jobs.make_features.make_features`. The codebook is fitted in this process, to the
    training split.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards, whose rows are float32.
    recipe : such as `mfcc-bow-1024` or `birdnet`; see `pipeline.sound.recipes`.
    compute : of its fields, `codebook` and `threads`, files at once, count.
    select, storage, place, monitor : see `pipeline.images.extract.extract`.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    RecipeError
        No recipe of sound has this name.
    SoundWordsError
        No codebook can be fitted to the training split, or the file is of other words or clips.
    NoSoundNetwork
        The network is not installed.
    WrongUsage
        A codebook for a recipe without one.
    NoPyAv, FileReadError, PipelineError
        The system is at fault, the dataset cannot be read, or shards cannot be written.
    """
    select, compute, out = select or Selection(), compute or Compute(), Path(out)
    expected = sound_recipe(recipe)
    manifest = read_manifest(dataset)
    codebook = None if compute.codebook is None else Path(compute.codebook)
    if isinstance(expected, BagRecipe):
        threads = compute.threads or len(os.sched_getaffinity(0))
        codebook = codebook_for(
            manifest, out, expected, codebook, _FIT_SPLIT, _SEED, threads, monitor,
            update=storage is not None and storage.update,
        )  # fmt: skip
    elif codebook is not None:
        raise WrongUsage(f"a codebook is of bags of sound words; {recipe} has none")
    maker = row_maker(expected, codebook)
    entries = manifest.select(select.split)[: select.limit]
    files = manifest.files(entries)
    header = sound_header(maker, manifest.name)
    source = SoundSource(header, entries.ids, files, maker, codebook, compute)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    monitor.log(f"{silent_rows(out)} of {index.rows} rows are without sound: zeros")
    _log_lengths(source.lengths, monitor)
    return index


def silent_rows(out: Path) -> int:
    """Return how many rows of a finished set are of files without sound: all zeros."""
    rows = FeatureSet(out)
    ids = [row for row, status in zip(rows.ids, rows.status.tolist(), strict=True) if status == OK]
    return sum(
        int((~rows.read(ids[start : start + _ROWS_AT_ONCE]).any(axis=1)).sum())
        for start in range(0, len(ids), _ROWS_AT_ONCE)
    )


def _log_lengths(lengths: Mapping[str, tuple[float, float]], monitor: Monitor) -> None:
    if lengths:
        shown = "; ".join(
            f"{row}: {heard:.1f} s of sound, {seen:.1f} s of picture"
            for row, (heard, seen) in list(lengths.items())[:_SHOWN]
        )
        monitor.log(
            f"{len(lengths)} clips have sound of another length than their picture; it is used "
            f"as it is: {shown}"
        )
