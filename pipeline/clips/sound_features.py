"""The job of `pipeline extract` for recipes of sound: files become rows of what is heard."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from pipeline.clips.clip_file import clip_crc32
from pipeline.clips.sound import Sound
from pipeline.clips.sound_codebooks import codebook_for, sounds_of
from pipeline.clips.sound_recipes import BagRecipe, sound_recipe
from pipeline.clips.sound_rows import row_maker, sound_block, sound_header
from pipeline.clips.sound_workers import extract_sound_on_workers
from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import read_manifest
from pipeline.errors import WrongUsage
from pipeline.images.extract import find_rows, require_counts
from pipeline.images.stamps import file_stamps, stamps_sha256
from pipeline.progress import FORWARD, QUIET, Monitor, Stopwatch
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK
from pipeline.shards.index import FeatureIndex
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.summary import write_summary

_ROWS_AT_ONCE = 1024
_SHOWN = 5
LENGTHS_DIFFER = 0.5
"""Seconds by which sound and picture of a clip may differ in length before a line says so."""


def extract_sound(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
    codebook: str | Path | None = None,
    fit_split: str = "train",
    seed: int = 0,
    split: str | None = None,
    limit: int | None = None,
    compress: bool = False,
    rows_per_shard: int | None = None,
    threads: int | None = None,
    retry_failed: bool = False,
    add: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract features of the sound of a dataset's clips, or files of sound, into shards.

    A file without sound, or with less of it than one window, has a row of zeros; a line counts
    them. A file that is missing or cannot be decoded keeps its row, with a status and a reason. The
    same call again goes on where the last one stopped, and on a finished output computes the rows
    whose files have changed. It gives the same bytes on any number of threads and workers. The
    codebook is fitted in this process.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards, whose rows are float32.
    recipe : such as `mfcc-bow-1024` or `birdnet`; see `pipeline.clips.sound_recipes`.
    codebook : file of the sound words: taken from there, or put there once fitted. None: beside
        `out`, named after their number; it must be of this dataset's `fit_split` then.
    fit_split : split whose clips a codebook is fitted to.
    seed : of a codebook that is fitted.
    split, limit, compress, rows_per_shard, retry_failed, add, workers, scheduler, resources,
    summary, monitor : see `pipeline.images.extract.extract`.
    threads : files at once, of each worker where there are any; None: one for each core.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    RecipeError
        No recipe of sound has this name.
    SoundWordsError
        No codebook can be fitted to this split, or the file is of other words or other clips.
    NoSoundNetwork
        The network is not installed.
    WrongUsage
        A count below 1, or a codebook for a recipe without one.
    NoPyAv, ImageReadError, PipelineError
        The system is at fault, the dataset cannot be read, or shards cannot be written.
    """
    require_counts(limit=limit, threads=threads, rows_per_shard=rows_per_shard)
    out, started, watch = Path(out), time.monotonic(), Stopwatch()
    wanted = sound_recipe(recipe)
    manifest = read_manifest(dataset)
    place = place_of_work(workers, scheduler, resources)
    here = threads or len(os.sched_getaffinity(0))
    given = None if codebook is None else Path(codebook)
    if isinstance(wanted, BagRecipe):
        given = codebook_for(manifest, out, wanted, given, fit_split, seed, here, monitor)
    elif given is not None:
        raise WrongUsage(f"a codebook is of bags of sound words; {recipe} has none")
    maker = row_maker(wanted, given)
    header = sound_header(maker, manifest.name)
    file_of = {e.id: manifest.image_root / e.file for e in manifest.select(split)[:limit]}
    inputs = stamps_sha256(file_stamps(file_of.values()))
    lengths: dict[str, tuple[float, float]] = {}
    with ShardBuild(out, header, [*file_of], rows_per_shard, compress, inputs, add) as build:
        paths = [file_of[row] for row in build.ids]
        find_rows(build, out, header, paths, here, retry_failed, monitor, "clips", clip_crc32)
        rows = [row for span in build.pending() for row in range(span.start, span.stop)]
        done, failed = build.rows_done, 0
        if place.elsewhere and rows:
            with place.executor(monitor) as executor, monitor.progress(recipe, "clip") as progress:
                index = extract_sound_on_workers(
                    build, paths, recipe, given, place.share(threads) or 1, executor, progress,
                    watch,
                )  # fmt: skip
        else:
            with monitor.progress(recipe, "clip") as progress:
                for row, sound in sounds_of(rows, paths, maker.rate, here):
                    with watch.timing(FORWARD):
                        block = sound_block(sound, maker)
                    build.append(row, block)
                    _note_lengths(lengths, build.ids[row], sound, maker.rate)
                    done, failed = done + 1, failed + (sound.status != OK)
                    progress(done, len(paths), failed)
            index = build.publish()
    seconds = time.monotonic() - started
    monitor.log(
        f"{len(rows)} computed in {seconds:.1f} s ({len(rows) / max(seconds, 1e-9):.1f} clips/s), "
        f"{index.failed_rows} failed, {silent_rows(out)} of {index.rows} without sound: zeros"
    )
    _say_lengths(lengths, monitor)
    if summary is not None:
        write_summary(
            Path(summary), "extract", out, index.metadata, len(rows), seconds, watch, place.name()
        )
    return index


def silent_rows(out: Path) -> int:
    """Return how many rows of a finished set are of files without sound: all zeros."""
    rows = FeatureSet(out)
    ids = [row for row, status in zip(rows.ids, rows.status.tolist(), strict=True) if status == OK]
    return sum(
        int((~rows.read(ids[start : start + _ROWS_AT_ONCE]).any(axis=1)).sum())
        for start in range(0, len(ids), _ROWS_AT_ONCE)
    )


def _note_lengths(
    lengths: dict[str, tuple[float, float]], row: str, sound: Sound, rate: int
) -> None:
    if sound.samples is None or not len(sound.samples) or sound.seconds is None:
        return
    heard = len(sound.samples) / rate
    if abs(heard - sound.seconds) > LENGTHS_DIFFER:
        lengths[row] = heard, sound.seconds


def _say_lengths(lengths: Mapping[str, tuple[float, float]], monitor: Monitor) -> None:
    if lengths:
        shown = "; ".join(
            f"{row}: {heard:.1f} s of sound, {seen:.1f} s of picture"
            for row, (heard, seen) in list(lengths.items())[:_SHOWN]
        )
        monitor.log(
            f"{len(lengths)} clips have sound of another length than their picture, which counts "
            f"as it is: {shown}"
        )
