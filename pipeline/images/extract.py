"""The job of `pipeline extract`: the images of a dataset become feature shards."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import NO_PICTURES, read_manifest
from pipeline.errors import WrongUsage
from pipeline.images.changes import changed_rows, failed_rows
from pipeline.images.decode import source_crc32
from pipeline.images.memory import expected_memory, resident_memory
from pipeline.images.network import RecipeNetwork, device_for
from pipeline.images.region import Region, Source, photo_of
from pipeline.images.rows import Parallelism, default_parallelism, extract_features, feature_header
from pipeline.images.side_by_side import extract_side_by_side, split_name
from pipeline.images.stamps import StampRecord, file_stamps, stamps_sha256
from pipeline.images.weights import load_weights
from pipeline.images.workers import ExtractionSettings, extract_on_workers
from pipeline.progress import QUIET, Monitor, Stopwatch
from pipeline.recipes import Recipe, resolve_recipe
from pipeline.shards.format import FeatureHeader
from pipeline.shards.index import FeatureIndex
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.summary import write_summary

_MB, _GB = 1e6, 1e9


def extract(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: str,
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
    trust_stamps: bool = False,
    add: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of a dataset's images into shards.

    An image that is missing, unreadable or refused keeps its row, as NaN with a status and a
    reason. The same call again goes on where the last one stopped; on a finished output it
    computes the rows whose pictures have changed since, and no others. It gives the same bytes,
    interrupted or not, on any number of threads and workers.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards; their rows are float32 or float16, (images, *shape of the recipe),
        and their row ids are image ids.
    recipe : name of a recipe, of a backbone with a default recipe, "timm:<model>" or
        "open-clip:<model>.<tag>"; or several names joined by "+", which go into folders of their
        own beside `out`, so that `out` needs no room: see `pipeline.shards.side_by_side`.
    split : only the images of this split; None takes all.
    limit : only the first images, this many; None takes all.
    weights : "imagenet" for the recipe's own, "random:SEED", or the path of a file.
    trained_on : datasets that the weights were trained on, for the shards' header; names separated
        by commas. None: as the recipe says of its own weights. It changes no feature.
    precision : arithmetic of the network, of `pipeline.recipes.PRECISIONS`.
    storage : type of the stored rows, of `pipeline.recipes.STORAGES`.
    compress : gzip in small chunks: smaller, slower to read.
    rows_per_shard : None: as `out` has it, or what makes shards of up to 1 GiB.
    batch_size : images in a batch; None: 8 (or 1 of ten crops), on a GPU 128 (or 12).
    device : a torch device, such as "cpu" or "cuda"; the worker's, where workers compute.
    engine : of `pipeline.images.engine.ENGINES`; their features agree up to rounding.
    threads : batches in the network at once; None: one for each core, or 2 on a GPU.
    readers : threads that read and decode ahead; None: one for each core, at most 8 (16).
    retry_failed : compute the failed rows of a finished output again.
    trust_stamps : do not read pictures again whose size and time of change are those that they had
        when they were last read by a call with this option; see `StampRecord`.
    add : add images that the dataset has and a finished output lacks, in new shards.
    workers, scheduler, resources : where the work is done; see `place_of_work`. `threads` and
        `readers` are then those of each worker.
    summary : JSON file to write counts, rates and seconds to.
    monitor : gets log lines and progress.

    Returns
    -------
    FeatureIndex
        Of the finished shards; its `failed_rows` counts the images without features.

    Raises
    ------
    WrongUsage
        Arguments that contradict each other, or a count below 1.
    RecipeError, WeightsError, DeviceError
        The recipe, its weights or the device are not to be had.
    ImageReadError
        The system, not a file, is at fault; finished rows are kept.
    PipelineError
        The dataset cannot be read, or the shards cannot be written.
    KeyboardInterrupt
        Finished rows are kept, and a line says so.
    """
    require_counts(limit=limit)
    out, weights = Path(out), str(weights)
    if (names := split_name(recipe)) is not None:
        if summary is not None:
            raise WrongUsage("--summary is of one recipe; extract each by itself for a summary")

        def extract_one(name: str, folder: Path) -> FeatureIndex:
            return extract(
                dataset, folder, recipe=name, split=split, limit=limit, weights=weights,
                trained_on=trained_on, precision=precision, storage=storage, compress=compress,
                rows_per_shard=rows_per_shard, batch_size=batch_size, device=device, engine=engine,
                threads=threads, readers=readers, retry_failed=retry_failed,
                trust_stamps=trust_stamps, add=add, workers=workers, scheduler=scheduler,
                resources=resources, monitor=monitor,
            )  # fmt: skip

        return extract_side_by_side(names, out, extract_one, monitor)
    resolved = resolve_recipe(recipe, precision, storage)
    manifest = read_manifest(dataset).require("images", f"the recipe {recipe!r}", NO_PICTURES)
    entries = manifest.select(split)[:limit]
    return extract_sources(
        entries.ids,
        manifest.files(entries),
        out,
        resolved,
        manifest.name,
        weights=weights,
        trained_on=trained_on,
        compress=compress,
        rows_per_shard=rows_per_shard,
        batch_size=batch_size,
        device=device,
        engine=engine,
        threads=threads,
        readers=readers,
        retry_failed=retry_failed,
        trust_stamps=trust_stamps,
        add=add,
        workers=workers,
        scheduler=scheduler,
        resources=resources,
        summary=summary,
        monitor=monitor,
    )


def extract_sources(
    ids: Sequence[str],
    sources: Sequence[Source],
    out: Path,
    resolved: Recipe,
    dataset: str,
    *,
    region: dict[str, Any] | None = None,
    weights: str = "imagenet",
    trained_on: str | None = None,
    compress: bool = False,
    rows_per_shard: int | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
    engine: str = "fast",
    threads: int | None = None,
    readers: int | None = None,
    retry_failed: bool = False,
    trust_stamps: bool = False,
    add: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> FeatureIndex:
    """Extract the features of files, or of regions of files, by row id; see `extract`.

    Parameters
    ----------
    ids : of the rows.
    sources : what each row is made from; regions of a photo stand together.
    out : folder of the shards.
    resolved : the recipe.
    dataset : name of the dataset.
    region : how regions are cut, which their recipe says; None: the rows are whole pictures.
    others : as `extract` has them.
    """
    require_counts(
        rows_per_shard=rows_per_shard, batch_size=batch_size, threads=threads, readers=readers
    )
    unit = "image" if region is None else "region"
    place = place_of_work(workers, scheduler, resources, gpu=device.partition(":")[0] == "cuda")
    if scheduler is None:  # whose workers may have what this machine has not
        device_for(device, resolved)
    usual = default_parallelism(resolved, device)
    parallelism = Parallelism(
        batch_size or usual.batch_size, threads or usual.threads, readers or usual.readers
    )
    loaded = load_weights(resolved, weights)
    header = feature_header(resolved, loaded, dataset, trained_on)
    stamps = file_stamps(map(photo_of, sources))
    inputs: list[Any] = [engine, stamps_sha256(stamps)]
    if region is not None:
        header = replace(header, recipe={**header.recipe, "region": region})
        inputs.append([s.box for s in sources if isinstance(s, Region)])
    build = ShardBuild(out, header, ids, rows_per_shard, compress, inputs, add)
    started, watch = time.monotonic(), Stopwatch()
    try:
        with build:
            paths = build.in_order(sources)
            record, unchanged = StampRecord(out), None
            if trust_stamps:
                stamps = stamps[np.asarray(build.in_order(range(len(ids))))]
                unchanged = record.unchanged(build, stamps)
            find_rows(
                build, out, header, paths, parallelism.readers, retry_failed, monitor,
                unchanged=unchanged,
            )  # fmt: skip
            computed = len(paths) - build.rows_done
            if not build.pending():
                index = build.publish()
            elif place.elsewhere:
                settings = ExtractionSettings(
                    resolved,
                    weights,
                    device,
                    engine,
                    parallelism.batch_size,
                    place.share(threads),
                    readers,
                    region,
                )
                with (
                    place.executor(monitor) as executor,
                    monitor.progress(resolved.name, unit) as progress,
                ):
                    index = extract_on_workers(build, paths, settings, executor, progress, watch)
            else:
                network = RecipeNetwork(resolved, loaded.state, device, engine)
                _log_memory(network, parallelism, monitor)
                with monitor.progress(resolved.name, unit) as progress:
                    index = extract_features(build, paths, network, parallelism, progress, watch)
            if trust_stamps:
                record.write(index, stamps)
    except KeyboardInterrupt:
        monitor.log(
            f"interrupted: {build.rows_done} of {len(sources)} rows are kept in {build.work}; "
            "the same command goes on from there"
        )
        raise
    seconds = time.monotonic() - started
    monitor.log(
        f"{computed} computed in {seconds:.1f} s ({computed / max(seconds, 1e-9):.1f} {unit}s/s), "
        f"{index.failed_rows} failed"
    )
    if summary is not None:
        write_summary(
            Path(summary), "extract", out, index.metadata, computed, seconds, watch, place.name()
        )
    return index


def require_counts(**counts: int | None) -> None:
    """Refuse counts below 1; None is a default.

    Raises
    ------
    WrongUsage
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise WrongUsage(f"{name} is {value}; it must be at least 1")


def find_rows(
    build: ShardBuild,
    out: Path,
    header: FeatureHeader,
    paths: Sequence[Source],
    readers: int,
    retry_failed: bool,
    monitor: Monitor,
    files: str = "pictures",
    crc32_of: Callable[[Path], int] = source_crc32,
    unchanged: np.ndarray | None = None,
) -> None:
    """Log rows done and room needed; have the rows of changed files made again.

    Parameters
    ----------
    build : just entered.
    out, header, paths : of the feature set.
    readers : threads that read the files of finished rows.
    retry_failed : have failed rows made again too.
    monitor : gets log lines and progress.
    files, crc32_of : what the files are called, and the CRC-32 of one.
    unchanged : (rows,) bool, rows whose files need not be read; None: all are.
    """
    for found in build.damaged:
        monitor.log(f"will be made again: {found}")
    for folder in build.other_work():
        monitor.log(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
    with monitor.progress("checking", files.removesuffix("s")) as progress:
        changed, gone = changed_rows(build, paths, readers, progress, crc32_of, unchanged)
    failed = sorted({*failed_rows(build)} - {*changed})
    if changed:
        monitor.log(f"{files} changed or newly found: {len(changed)}; their rows are made again")
    if gone:
        monitor.log(f"{files} no longer there: {len(gone)}; their rows stay as they are")
    if failed and not retry_failed:
        monitor.log(f"{len(failed)} rows failed before; --retry-failed computes them again")
    build.redo([*changed, *failed] if retry_failed else changed)
    rows = len(build.ids)
    monitor.log(
        f"{rows} rows of {header.row_shape} {header.dtype}: {rows * header.row_bytes / _MB:.1f} MB "
        f"in {build.plan.shards} shards; {build.rows_done} rows are done"
    )


def _log_memory(network: RecipeNetwork, parallelism: Parallelism, monitor: Monitor) -> None:
    sharing = "; the ten crops share their work" if network.shares_crops else ""
    held, more = (size / _GB for size in (resident_memory(), expected_memory(network, parallelism)))
    if network.remark:
        monitor.log(network.remark)
    monitor.log(
        f"batches of {parallelism.batch_size} images, {parallelism.threads} at once, "
        f"{parallelism.readers} readers; memory: {held:.1f} GB now, at most {more:.1f} GB "
        f"more{sharing}"
    )
