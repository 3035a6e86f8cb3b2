"""`pipeline extract`: the images of a dataset become feature shards."""

import time
import warnings
from dataclasses import replace
from pathlib import Path

import click

from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import read_manifest
from pipeline.images.engine import ENGINES
from pipeline.images.extract import (
    Parallelism,
    changed_rows,
    default_parallelism,
    extract_features,
    failed_rows,
    file_stamps,
)
from pipeline.images.memory import expected_memory, resident_memory
from pipeline.images.network import RecipeNetwork, device_for
from pipeline.images.weights import feature_header, load_weights
from pipeline.images.workers import ExtractionSettings, extract_on_workers
from pipeline.progress import Stopwatch
from pipeline.recipes import PRECISIONS, STORAGES, Recipe, resolve_recipe
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.feature_set import FeatureSet
from pipeline.summary import write_summary
from stages.cluster import cluster_options
from stages.console import (
    CONSOLE,
    FAILED,
    OUTPUT,
    SOME_ROWS_FAILED,
    log_done,
    log_settings,
    progress_of,
)

_REASONS_SHOWN = 5


# Pillow warns of pictures that are then refused, and of oddities in files that it reads.
warnings.filterwarnings("ignore", module=r"PIL\.")


@click.command()
@click.option("--backbone", help="Backbone, for its default recipe; see `pipeline recipes`.")
@click.option("--recipe", "recipe_name", help="Recipe by name; see `pipeline recipes`.")
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the shards.")
@click.option("--split", help="Only the images of this split.  [default: all]")
@click.option("--limit", type=click.IntRange(1), help="Only the first N images.  [default: all]")
@click.option(
    "--weights",
    default="imagenet",
    show_default=True,
    help="imagenet, PATH of a .pth, .pt, .safetensors or .caffemodel file, or random:SEED.",
)
@click.option(
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Images in a batch.  [default: 8, or 1 of ten crops; on a GPU 128, or 12]",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    show_default=True,
    help="Arithmetic of the network.",
)
@click.option(
    "--storage",
    type=click.Choice(STORAGES),
    default="float32",
    show_default=True,
    help="Type of the stored features.",
)
@click.option("--compress", is_flag=True, help="gzip in small chunks: smaller, slower to read.")
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="fast",
    show_default=True,
    help="fast, or the network as its authors wrote it; they agree up to rounding.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Batches in the network at once, on a core each.  [default: cores; on a GPU 2]",
)
@click.option(
    "--readers",
    type=click.IntRange(1),
    help="Threads that read and decode ahead.  [default: cores, at most 8; with a GPU 16]",
)
@click.option(
    "--retry-failed", is_flag=True, help="In a finished output, compute the failed rows again."
)
@click.option(
    "--add",
    is_flag=True,
    help="Add images that the dataset, prepared again, has and a finished output lacks, in new "
    "shards; those it has stay.",
)
@cluster_options
@click.pass_context
def extract(
    ctx: click.Context,
    backbone: str | None,
    recipe_name: str | None,
    dataset: Path,
    out: Path,
    split: str | None,
    limit: int | None,
    weights: str,
    rows_per_shard: int | None,
    batch_size: int | None,
    precision: str,
    storage: str,
    compress: bool,
    device: str,
    engine: str,
    threads: int | None,
    readers: int | None,
    retry_failed: bool,
    add: bool,
    workers: int | None,
    scheduler: str | None,
    resources: dict[str, float],
    summary: Path | None,
) -> None:
    """Turn the images of a prepared dataset into feature shards.

    Missing, unreadable and refused images keep their row, with a status and a reason; the
    command then ends with exit status 3. The same command again goes on where it stopped; on a
    finished output it computes the rows whose pictures have changed since, and no others.

    With --workers or --scheduler the pending shards are spread over worker processes; --threads
    and --readers are then those of each worker.

    \b
    Example:
      pipeline extract --backbone efficientnet-lite0 --dataset data/scenes \\
          --out data/features/scenes/efficientnet-lite0-pool
    """
    if (name := recipe_name or backbone) is None or (recipe_name and backbone):
        raise click.UsageError("give --backbone NAME or --recipe NAME, one of them")
    recipe = resolve_recipe(name, precision, storage)
    if scheduler is None:  # whose workers may have what this machine has not
        device_for(device, recipe)
    manifest = read_manifest(dataset)
    file_of = {
        entry.id: manifest.image_root / entry.file for entry in manifest.select(split)[:limit]
    }
    usual = default_parallelism(recipe, device)
    parallelism = replace(
        usual,
        batch_size=batch_size or usual.batch_size,
        mappers=threads or usual.mappers,
        readers=readers or usual.readers,
    )
    place = place_of_work(workers, scheduler, resources, gpu=device.partition(":")[0] == "cuda")
    log_settings(
        "extract",
        recipe=recipe.name,
        weights=weights,
        dataset=dataset,
        out=out,
        split=split,
        limit=limit,
        batch_size=parallelism.batch_size,
        precision=precision,
        storage=storage,
        device=device,
        engine=engine,
        threads=threads if place.elsewhere else parallelism.mappers,
        readers=readers if place.elsewhere else parallelism.readers,
        workers=workers,
        scheduler=scheduler,
    )
    loaded = load_weights(recipe, weights)
    header = feature_header(recipe, loaded, manifest.name)
    inputs = [engine, file_stamps(list(file_of.values()))]
    build = ShardBuild(out, header, list(file_of), rows_per_shard, compress, inputs, add)
    started = time.monotonic()
    watch = Stopwatch()
    try:
        with build:
            paths = [file_of[one] for one in build.ids]
            _find_rows(build, out, paths, parallelism, retry_failed)
            computed = len(paths) - build.rows_done
            _announce(build, recipe)
            if not build.pending():
                index = build.publish()
            elif place.elsewhere:
                todo = ExtractionSettings(
                    recipe,
                    weights,
                    device,
                    engine,
                    parallelism.batch_size,
                    place.share(threads),
                    readers,
                )
                with (
                    place.executor(CONSOLE) as executor,
                    progress_of(recipe.name, "image") as progress,
                ):
                    index = extract_on_workers(build, paths, todo, executor, progress, watch)
            else:
                network = RecipeNetwork(recipe, loaded.state, device, engine)
                _announce_memory(network, parallelism)
                with progress_of(recipe.name, "image") as progress:
                    index = extract_features(build, paths, network, parallelism, progress, watch)
    except KeyboardInterrupt:
        log_done(
            f"interrupted: {build.rows_done} of {len(file_of)} rows are kept in {build.work}; "
            "the same command goes on from there"
        )
        ctx.exit(FAILED)
    seconds = time.monotonic() - started
    log_done(
        f"{index.rows} rows {recipe.shape} in {len(index.shards)} shards in {out}, recipe "
        f"{header.recipe_hash}; {computed} computed in {seconds:.1f} s "
        f"({computed / max(seconds, 1e-9):.1f} images/s), {index.failed_rows} failed"
    )
    if summary:
        facts = index.metadata
        write_summary(summary, "extract", out, facts, computed, seconds, watch, place.name())
    if index.failed_rows:
        for image_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {image_id}: {status}: {reason}")
        log_done(f"{index.failed_rows} of {index.rows} rows failed; they keep their rows, as NaN")
        ctx.exit(SOME_ROWS_FAILED)


def _find_rows(
    build: ShardBuild, out: Path, paths: list[Path], parallelism: Parallelism, retry_failed: bool
) -> None:
    """Say what is there already, and have the rows of changed pictures computed again."""
    for text in build.damaged:
        log_done(f"will be made again: {text}")
    for folder in build.other_work():
        log_done(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
    with progress_of("checking", "image") as progress:
        changed, gone = changed_rows(build, paths, parallelism.readers, progress)
    failed = sorted({*failed_rows(build)} - {*changed})
    if changed:
        log_done(f"pictures changed or newly found: {len(changed)}; their rows are made again")
    if gone:
        log_done(f"pictures no longer there: {len(gone)}; their rows stay as they are")
    if failed and not retry_failed:
        log_done(f"{len(failed)} rows failed before; --retry-failed computes them again")
    build.redo([*changed, *failed] if retry_failed else changed)


def _announce(build: ShardBuild, recipe: Recipe) -> None:
    rows = len(build.ids)
    log_done(
        f"{rows} rows of {recipe.shape} {recipe.storage}: {rows * recipe.row_bytes / 1e6:.1f} MB "
        f"in {build.plan.shards} shards; {build.rows_done} rows are done"
    )


def _announce_memory(network: RecipeNetwork, parallelism: Parallelism) -> None:
    sharing = "; the ten crops share their work" if network.shares_crops else ""
    held, more = (size / 1e9 for size in (resident_memory(), expected_memory(network, parallelism)))
    log_done(f"memory: {held:.1f} GB now, at most {more:.1f} GB more{sharing}")
