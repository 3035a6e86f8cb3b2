"""The job of `pipeline extract` for audio recipes: features of the sound of files."""

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.clips.sound.codebooks import codebook_for
from pipeline.clips.sound.recipes import BagRecipe, sound_recipe
from pipeline.clips.sound.sound_source import SoundSource, row_maker, sound_header
from pipeline.datasets.manifest import read_manifest
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.options import Compute, Selection, Storage
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.workers.place import Place

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
    """Extract audio features of a dataset's clips or sound files into shards of float32 rows.

    A file without sound, or with less than one window, has a row of zeros; a log line counts them.
    The codebook is fitted in this process, on the training split. Of `compute`, only `codebook` and
    `threads`, files decoded at once, are used.
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
        raise WrongUsage(f"`codebook=...` applies to bags of sound words, not to {recipe}")
    maker = row_maker(expected, codebook)
    entries = manifest.select(select.split)[: select.limit]
    files = manifest.files(entries)
    header = sound_header(maker, manifest.name)
    source = SoundSource(header, entries.ids, files, maker, codebook, compute)
    index = make_features(source, out, storage=storage, place=place, monitor=monitor)
    monitor.log(f"{silent_rows(out)} of {index.rows} rows are zero: no sound")
    _log_lengths(source.lengths, monitor)
    return index


def silent_rows(out: Path) -> int:
    """Return the number of rows of files without sound (all zeros) in a finished set."""
    rows = FeatureSet(out)
    ids = [row for row, status in zip(rows.ids, rows.status.tolist(), strict=True) if status == OK]
    return sum(
        int((~rows.read(ids[start : start + _ROWS_AT_ONCE]).any(axis=1)).sum())
        for start in range(0, len(ids), _ROWS_AT_ONCE)
    )


def _log_lengths(lengths: Mapping[str, tuple[float, float]], monitor: Monitor) -> None:
    if lengths:
        shown = "; ".join(
            f"{row}: {heard:.1f} s of sound, {seen:.1f} s of video"
            for row, (heard, seen) in list(lengths.items())[:_SHOWN]
        )
        monitor.log(
            f"{len(lengths)} clips have sound of another length than their video; it is used "
            f"unchanged: {shown}"
        )
