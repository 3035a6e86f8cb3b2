"""The job of `pipeline extract` for recipes of sound: files become bags of sound words."""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.clips.sound import Sound, read_sound
from pipeline.clips.sound_recipes import SoundRecipe, sound_recipe
from pipeline.clips.sound_words import (
    SAMPLE,
    SoundWords,
    SoundWordsError,
    fit_sound_words,
    load_sound_words,
    sample_of,
)
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.errors import WrongUsage
from pipeline.files import created_by
from pipeline.hashing import sha256_of_json
from pipeline.images.changes import changed_rows, failed_rows, file_stamps
from pipeline.progress import QUIET, Monitor, Stopwatch
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import OK, FeatureHeader, RowBlock
from pipeline.shards.index import FeatureIndex
from pipeline.shards.plan import Span
from pipeline.summary import write_summary

# Files that are read ahead of the one that is waited for.
_AHEAD = 8
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
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract bags of sound words of a dataset's clips, or files of sound, into shards.

    A file without sound, or with less of it than one window, has a row of zeros; a line counts
    them. A file that is missing or cannot be decoded keeps its row, with a status and a reason. The
    same call again goes on where the last one stopped, and on a finished output computes the rows
    whose files have changed. It gives the same bytes on any number of threads.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards, whose rows are float32.
    recipe : such as `mfcc-bow-1024`; see `pipeline.clips.sound_recipes.SoundRecipe`.
    codebook : file of the sound words: taken from there, or put there once fitted. None: beside
        `out`, named after their number; it must be of this dataset's `fit_split` then.
    fit_split : split whose clips a codebook is fitted to.
    seed : of a codebook that is fitted.
    split, limit, compress, rows_per_shard, retry_failed, add, summary, monitor : see
        `pipeline.images.extract.extract`.
    threads : files at once; None: one for each core.

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
    NoPyAv, ImageReadError, PipelineError
        The system is at fault, the dataset cannot be read, or shards cannot be written.
    """
    for name, value in (("limit", limit), ("threads", threads), ("rows_per_shard", rows_per_shard)):
        if value is not None and value < 1:
            raise WrongUsage(f"{name} is {value}; it must be at least 1")
    out, started, watch = Path(out), time.monotonic(), Stopwatch()
    wanted = sound_recipe(recipe)
    manifest = read_manifest(dataset)
    threads = threads or len(os.sched_getaffinity(0))
    entries = manifest.select(split)[:limit]
    words = _codebook(manifest, out, wanted, codebook, fit_split, seed, threads, monitor)
    header = _header(wanted, words, manifest.name)
    file_of = {entry.id: manifest.image_root / entry.file for entry in entries}
    inputs = file_stamps(list(file_of.values()))
    lengths: dict[str, tuple[float, float]] = {}
    with ShardBuild(out, header, [*file_of], rows_per_shard, compress, inputs, add) as build:
        paths = [file_of[row] for row in build.ids]
        _find_rows(build, out, paths, threads, retry_failed, monitor)
        done = build.rows_done
        computed, failed = len(paths) - done, 0
        with monitor.progress(wanted.name, "clip") as progress:
            for row, sound in _sounds(build.pending(), paths, wanted, threads):
                with watch.timing("words"):
                    block = _block(sound, wanted, words)
                build.append(row, block)
                _note_lengths(lengths, build.ids[row], sound, wanted)
                done, failed = done + 1, failed + (sound.status != OK)
                progress(done, len(paths), failed)
        index = build.publish()
    seconds = time.monotonic() - started
    monitor.log(
        f"{computed} computed in {seconds:.1f} s ({computed / max(seconds, 1e-9):.1f} clips/s), "
        f"{index.failed_rows} failed, {silent_rows(out)} of {index.rows} without sound: zeros"
    )
    _say_lengths(lengths, monitor)
    if summary is not None:
        metadata = index.metadata
        write_summary(
            Path(summary), "extract", out, metadata, computed, seconds, watch, "one process"
        )
    return index


def silent_rows(out: Path) -> int:
    """Return how many rows of a finished set of bags are of files without sound: all zeros."""
    rows = FeatureSet(out)
    ids = [row for row, status in zip(rows.ids, rows.status.tolist(), strict=True) if status == OK]
    return sum(
        int((~rows.read(ids[start : start + _ROWS_AT_ONCE]).any(axis=1)).sum())
        for start in range(0, len(ids), _ROWS_AT_ONCE)
    )


def sound_header_recipe(recipe: SoundRecipe, words: SoundWords) -> dict[str, object]:
    """Return the recipe as shards carry it: with what its codebook was fitted to."""
    fitted = words.metadata
    return {**recipe.to_json(), "codebook": {"dataset": fitted.dataset, "split": fitted.split}}


def _header(recipe: SoundRecipe, words: SoundWords, dataset: str) -> FeatureHeader:
    return FeatureHeader(
        recipe=sound_header_recipe(recipe, words),
        weights=f"codebook of {len(words.words)} sound words",
        weights_sha256=words.sha256,
        axes="row, word",
        dataset=dataset,
        row_shape=recipe.shape,
        dtype="float32",
        created_by=created_by("av", "numpy", "scipy", "h5py"),
    )


def _codebook(
    manifest: Manifest,
    out: Path,
    recipe: SoundRecipe,
    given: str | Path | None,
    split: str,
    seed: int,
    threads: int,
    monitor: Monitor,
) -> SoundWords:
    """Read the codebook, or fit it to the clips of a split and write it."""
    path = out.with_name(f"mfcc-{recipe.words}.codebook.safetensors") if given is None else None
    file = Path(given) if path is None and given is not None else path
    assert file is not None
    if file.exists():
        words = load_sound_words(file)
        words.require(recipe, str(file))
        if given is None and words.metadata.clips_sha256 != _clips_sha256(manifest, split):
            raise SoundWordsError(
                f"{file} was fitted to other clips than split {split!r} of {manifest.name!r} has "
                "now; remove it to have another one fitted, or name it by --codebook to use it"
            )
        return words
    entries = manifest.select(split)
    paths = [manifest.image_root / entry.file for entry in entries]
    parts, left_out = [], 0
    with monitor.progress(f"{recipe.words} sound words", "clip") as progress:
        for row, sound in _sounds([Span(0, len(paths))], paths, recipe, threads):
            if sound.samples is None:
                left_out += 1
            else:
                windows = recipe.mfcc(sound.samples)
                parts.append(sample_of(windows, row, len(paths), seed, SAMPLE))
            progress(row + 1, len(paths), left_out)
    if left_out:
        monitor.log(f"{left_out} clips of split {split!r} cannot be decoded: not in the codebook")
    words = fit_sound_words(
        parts,
        recipe.mfcc,
        recipe.words,
        seed=seed,
        dataset=manifest.name,
        split=split,
        clips_sha256=_clips_sha256(manifest, split),
        log=monitor.log,
    )
    words.save(file)
    monitor.log(f"{file}: {words.metadata.iterations} iterations of k-means")
    return words


def _clips_sha256(manifest: Manifest, split: str) -> str:
    entries = manifest.select(split)
    stamps = file_stamps([manifest.image_root / entry.file for entry in entries])
    return sha256_of_json([[e.id, s[:1]] for e, s in zip(entries, stamps, strict=True)])


def _find_rows(
    build: ShardBuild,
    out: Path,
    paths: Sequence[Path],
    threads: int,
    retry_failed: bool,
    monitor: Monitor,
) -> None:
    """Log what is there; have rows of changed files, and failed ones if asked, made again."""
    for found in build.damaged:
        monitor.log(f"will be made again: {found}")
    for folder in build.other_work():
        monitor.log(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
    changed, gone = changed_rows(build, paths, threads)
    failed = sorted({*failed_rows(build)} - {*changed})
    if changed:
        monitor.log(f"clips changed or newly found: {len(changed)}; their rows are made again")
    if gone:
        monitor.log(f"clips no longer there: {len(gone)}; their rows stay as they are")
    if failed and not retry_failed:
        monitor.log(f"{len(failed)} rows failed before; --retry-failed computes them again")
    build.redo([*changed, *failed] if retry_failed else changed)
    monitor.log(f"{len(paths)} rows in {build.plan.shards} shards; {build.rows_done} are done")


def _sounds(
    spans: Sequence[Span], paths: Sequence[Path], recipe: SoundRecipe, threads: int
) -> Iterator[tuple[int, Sound]]:
    """Yield the sounds of some rows in order, decoded ahead on threads."""
    waiting: deque[tuple[int, Future[Sound]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="sound") as pool:
        try:
            for row in (row for span in spans for row in range(span.start, span.stop)):
                if len(waiting) == threads + _AHEAD:
                    done, sound = waiting.popleft()
                    yield done, sound.result()
                waiting.append(
                    (row, pool.submit(partial(read_sound, paths[row], recipe.mfcc.rate)))
                )
            for done, sound in waiting:
                yield done, sound.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _block(sound: Sound, recipe: SoundRecipe, words: SoundWords) -> RowBlock:
    row = np.full(recipe.shape, np.nan, np.float32)
    if sound.samples is not None:
        row = words.bag(recipe.mfcc(sound.samples), recipe)
    return RowBlock(
        row[None],
        np.array([sound.status], np.uint8),
        (sound.reason,),
        np.array([sound.source_crc32], np.uint32),
    )


def _note_lengths(
    lengths: dict[str, tuple[float, float]], row: str, sound: Sound, recipe: SoundRecipe
) -> None:
    if sound.samples is None or not len(sound.samples) or sound.seconds is None:
        return
    heard = len(sound.samples) / recipe.mfcc.rate
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
