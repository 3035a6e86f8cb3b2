"""The job of `pipeline extract` on a dataset of clips: they become feature shards, a row a clip."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipeline.clips.clip_file import clip_crc32, require_av
from pipeline.clips.recipes import ClipRecipe, named_with, resolve_clip_recipe
from pipeline.clips.rows import View, clip_rows, default_readers, default_threads
from pipeline.clips.sound_features import extract_sound
from pipeline.clips.sound_recipes import is_sound_recipe
from pipeline.clips.views import Computation, clip_header, clip_view, load_clip_weights
from pipeline.clips.workers import ClipSettings, extract_clips_on_workers
from pipeline.cluster.place import Place, place_of_work
from pipeline.datasets.manifest import read_manifest
from pipeline.errors import WrongUsage
from pipeline.images.extract import find_rows, require_counts
from pipeline.images.presence import common_folder, require_there
from pipeline.images.side_by_side import split_name
from pipeline.images.stamps import file_stamps, stamps_sha256
from pipeline.images.weights import Weights
from pipeline.progress import QUIET, WRITE, Monitor, Progress, Stopwatch
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.format import MISSING, OK, FeatureHeader
from pipeline.shards.index import FeatureIndex
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.shards.side_by_side import SCALINGS, write_view
from pipeline.summary import write_summary

NO_CLIPS = "prepare one with `pipeline prepare clips`, or leave out what is of clips"
"""What to do where clips are needed and a dataset has pictures."""


def extract_clips(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
    frames: str | None = None,
    over_frames: str | None = None,
    codebook: str | Path | None = None,
    split: str | None = None,
    limit: int | None = None,
    weights: str | Path = "imagenet",
    trained_on: str | None = None,
    precision: str = "float32",
    storage: str = "float32",
    compress: bool = False,
    rows_per_shard: int | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
    engine: str = "fast",
    threads: int | None = None,
    readers: int | None = None,
    retry_failed: bool = False,
    add: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of a dataset's clips into shards.

    A clip that is missing, unreadable or refused keeps its row, as NaN with a status and a reason.
    The same call again goes on where the last one stopped; on a finished output it computes the
    rows whose clips have changed since. Recipes that are asked for together share the decoding of
    each clip, except on workers.

    Parameters
    ----------
    dataset, out, split, limit, weights, trained_on, precision, storage, compress, rows_per_shard,
    device, engine, threads, retry_failed, add, workers, scheduler, resources, summary, monitor :
        see `pipeline.images.extract.extract`; `weights` "imagenet" are the recipe's own, of 3-D
        networks those of Kinetics-400.
    recipe : of `pipeline.clips.recipes` or `sound_recipes`, or several joined by "+", which go
        into folders of their own beside `out`. Sound takes no weights; see
        `pipeline.clips.sound_features.extract_sound`.
    frames, over_frames : other frames than the recipe's usual ones, and how they are joined; the
        same as after "@" in the recipe's name.
    codebook : of a recipe of sound words; see `pipeline.clips.sound_features.extract_sound`.
    batch_size : frames (or runs of frames) in a batch; None: 8 (or 1), on a GPU 128 (or 16).
    readers : clips that are decoded at once; None: one for each core, at most 8 (16).

    Returns
    -------
    FeatureIndex
        Of the finished shards; its `failed_rows` counts the clips without features.

    Raises
    ------
    NoPyAv
        PyAV is not installed.
    DatasetError
        The dataset is one of images, or cannot be read.
    WrongUsage, RecipeError, WeightsError, DeviceError, ImageReadError, PipelineError
        See `pipeline.images.extract.extract`.
    KeyboardInterrupt
        Finished rows are kept, and a line says so.
    """
    require_counts(
        limit=limit, rows_per_shard=rows_per_shard, batch_size=batch_size, threads=threads,
        readers=readers,
    )  # fmt: skip
    require_av()
    out, together = Path(out), split_name(recipe)
    if together is not None and summary is not None:
        raise WrongUsage("--summary is of one recipe; extract each by itself for a summary")
    manifest = read_manifest(dataset).require("clips", f"the recipe {recipe!r} of clips", NO_CLIPS)
    clips = {e.id: manifest.image_root / e.file for e in manifest.select(split)[:limit]}
    job = _Job(
        clips,
        manifest.name,
        Computation(str(weights), device, engine, batch_size, trained_on),
        threads,
        readers,
        place_of_work(workers, scheduler, resources, gpu=device.partition(":")[0] == "cuda"),
        retry_failed,
        monitor,
    )

    def plan(name: str, folder: Path) -> _Plan:
        return _Plan(
            resolve_clip_recipe(name, precision, storage), folder, rows_per_shard, compress, add
        )

    def sound(name: str, folder: Path) -> FeatureIndex:
        return extract_sound(
            dataset, folder, recipe=name, codebook=codebook, split=split, limit=limit,
            compress=compress, rows_per_shard=rows_per_shard, threads=threads,
            retry_failed=retry_failed, add=add, workers=workers, scheduler=scheduler,
            resources=resources, summary=summary, monitor=monitor,
        )  # fmt: skip

    names = together.recipes if together else (recipe,)
    if codebook is not None and not any(map(is_sound_recipe, names)):
        raise WrongUsage("--codebook is of recipes of sound words, such as mfcc-bow-1024")
    if together is None:
        if is_sound_recipe(recipe):
            return sound(recipe, out)
        return job.extract([plan(named_with(recipe, frames, over_frames), out)], summary)
    names = tuple(
        name if is_sound_recipe(name) else named_with(name, frames, over_frames) for name in names
    )
    folders = [out.resolve().parent / name for name in names]
    plans = []
    for name, folder in zip(names, folders, strict=True):
        if is_sound_recipe(name):
            sound(name, folder)
        else:
            plans.append(plan(name, folder))
    for group in [[p] for p in plans] if job.place.elsewhere else [plans]:
        if group:
            job.extract(group)
    index = write_view(out, [FeatureSet(folder) for folder in folders], together.scaling)
    monitor.log(f"{out}: {len(folders)} sets side by side, {SCALINGS[together.scaling]}")
    return index


@dataclass(frozen=True)
class _Plan:
    """A feature set that is to be made, and how it is stored."""

    recipe: ClipRecipe
    out: Path
    rows_per_shard: int | None
    compress: bool
    add: bool


@dataclass(frozen=True)
class _Set:
    """A feature set that is being made."""

    plan: _Plan
    weights: Weights
    header: FeatureHeader
    build: ShardBuild


@dataclass(frozen=True)
class _Job:
    """What the sets that are made together have in common; see `extract_clips`."""

    clips: Mapping[str, Path]
    dataset: str
    how: Computation
    threads: int | None
    readers: int | None
    place: Place
    retry_failed: bool
    monitor: Monitor

    def extract(self, plans: Sequence[_Plan], summary: str | Path | None = None) -> FeatureIndex:
        """Make some sets, each clip being decoded once for all; return the index of the last."""
        watch, started = Stopwatch(), time.monotonic()
        with ExitStack() as entered:
            sets = [self._enter(plan, entered) for plan in plans]
            before = sum(s.build.rows_done for s in sets)
            try:
                indexes = [
                    index for group in _of_same_rows(sets) for index in self._compute(group, watch)
                ]
            except KeyboardInterrupt:
                for s in sets:
                    self.monitor.log(
                        f"interrupted: {s.build.rows_done} of {len(self.clips)} rows are kept in "
                        f"{s.build.work}; the same command goes on from there"
                    )
                raise
        seconds, index = time.monotonic() - started, indexes[-1]
        computed = sum(found.rows for found in indexes) - before
        self.monitor.log(
            f"{computed} computed in {seconds:.1f} s ({computed / max(seconds, 1e-9):.1f} "
            f"clips/s), {sum(found.failed_rows for found in indexes)} failed"
        )
        if summary is not None:
            write_summary(
                Path(summary), "extract", plans[-1].out, index.metadata, computed, seconds, watch,
                self.place.name(),
            )  # fmt: skip
        return index

    def _enter(self, plan: _Plan, entered: ExitStack) -> _Set:
        """Lock a set's output, find out what is there, and have changed clips made again."""
        loaded = load_clip_weights(plan.recipe, self.how.weights)
        header = clip_header(plan.recipe, loaded, self.dataset, self.how.trained_on)
        inputs = [self.how.engine, stamps_sha256(file_stamps(self.clips.values()))]
        build = entered.enter_context(
            ShardBuild(
                plan.out, header, list(self.clips), plan.rows_per_shard, plan.compress, inputs,
                plan.add,
            )
        )  # fmt: skip
        paths = [self.clips[row_id] for row_id in build.ids]
        readers = self.readers or default_readers(self.how.device)
        find_rows(
            build, plan.out, header, paths, readers, self.retry_failed, self.monitor, "clips",
            clip_crc32,
        )  # fmt: skip
        return _Set(plan, loaded, header, build)

    def _compute(self, sets: Sequence[_Set], watch: Stopwatch) -> list[FeatureIndex]:
        """Have the pending rows of sets of the same clips computed, and publish the sets."""
        pending = [s for s in sets if s.build.pending()]
        if not pending:
            return [s.build.publish() for s in sets]
        title = "+".join(s.plan.recipe.name for s in pending)
        if self.place.elsewhere:
            (only,) = pending
            settings = ClipSettings(
                only.plan.recipe, self.how, self.place.share(self.threads), self.readers
            )
            paths = [self.clips[row_id] for row_id in only.build.ids]
            with (
                self.place.executor(self.monitor) as executor,
                self.monitor.progress(title, "clip") as progress,
            ):
                return [
                    extract_clips_on_workers(only.build, paths, settings, executor, progress, watch)
                ]
        views = [clip_view(s.plan.recipe, s.weights, self.how) for s in pending]
        with self.monitor.progress(title, "clip") as progress:
            self._compute_here(pending, views, progress, watch)
        with watch.timing(WRITE):
            return [s.build.publish() for s in sets]

    def _compute_here(
        self, sets: Sequence[_Set], views: Sequence[View], progress: Progress, watch: Stopwatch
    ) -> None:
        ids = sets[0].build.ids
        paths = [self.clips[row_id] for row_id in ids]
        wanted: list[set[int]] = [set() for _ in ids]
        for number, s in enumerate(sets):
            for span in s.build.pending():
                for row in range(span.start, span.stop):
                    wanted[row].add(number)
        threads = self.threads or default_threads(self.how.device)
        readers = self.readers or default_readers(self.how.device)
        done, failed = sum(not w for w in wanted), 0
        progress(done, len(ids), failed)
        folder = common_folder(paths)
        frozen = [frozenset(w) for w in wanted]
        for row, blocks in clip_rows(paths, frozen, views, threads, readers, watch):
            if any(int(block.status[0]) == MISSING for block in blocks.values()):
                require_there(folder)
            with watch.timing(WRITE):
                for number, block in blocks.items():
                    sets[number].build.append(row, block)
            done += 1
            failed += any(int(block.status[0]) != OK for block in blocks.values())
            progress(done, len(ids), failed)


def _of_same_rows(sets: Sequence[_Set]) -> list[list[_Set]]:
    """Group sets whose rows are the same clips in the same order; one that grew may differ."""
    groups: dict[tuple[str, ...], list[_Set]] = {}
    for s in sets:
        groups.setdefault(tuple(s.build.ids), []).append(s)
    return list(groups.values())
