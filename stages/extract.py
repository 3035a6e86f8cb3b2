"""`pipeline extract`: the images of a dataset become feature shards."""

import os
import time
import warnings
from pathlib import Path

import click

from pipeline.datasets.manifest import read_manifest
from pipeline.images.extract import (
    default_batch_size,
    extract_features,
    feature_header,
    file_stamps,
)
from pipeline.images.network import FeatureNetwork, usable_device
from pipeline.images.weights import load_weights
from pipeline.recipes import PRECISIONS, STORAGES, resolve_recipe
from pipeline.shards.build import ShardBuild
from pipeline.shards.read import FeatureSet
from stages.console import FAILED, SOME_ROWS_FAILED, log_done, log_settings, progress_of

_REASONS_SHOWN = 5


# Pillow warns of pictures that are then refused, and of oddities in files that it reads.
warnings.filterwarnings("ignore", module=r"PIL\.")


@click.command()
@click.option("--backbone", help="Backbone, for its default recipe; see `pipeline recipes`.")
@click.option("--recipe", "recipe_name", help="Recipe by name; see `pipeline recipes`.")
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the shards.")
@click.option("--split", help="Only the images of this split.  [default: all]")
@click.option("--limit", type=click.IntRange(1), help="Only the first N images.  [default: all]")
@click.option(
    "--weights",
    default="imagenet",
    show_default=True,
    help="imagenet, PATH of a .pth or .safetensors state dict, or random:SEED.",
)
@click.option(
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Images in a batch.  [default: 8, or 1 of ten crops]",
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
    "--workers",
    type=click.IntRange(1),
    default=max(1, min(8, os.cpu_count() or 1)),
    show_default="cores, at most 8",
    help="Threads that read and decode ahead.",
)
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
    workers: int,
) -> None:
    """Turn the images of a prepared dataset into feature shards.

    Missing, unreadable and refused images keep their row, with a status and a reason; the
    command then ends with exit status 3. The same command again goes on where it stopped.

    \b
    Example:
      pipeline extract --backbone efficientnet-lite0 --dataset data/scenes \\
          --out data/features/scenes/efficientnet-lite0-pool
    """
    if (name := recipe_name or backbone) is None or (recipe_name and backbone):
        raise click.UsageError("give --backbone NAME or --recipe NAME, one of them")
    recipe = resolve_recipe(name, precision, storage)
    usable_device(device, recipe)
    manifest = read_manifest(dataset)
    entries = manifest.select(split)[:limit]
    batch_size = batch_size or default_batch_size(recipe)
    log_settings(
        "extract",
        recipe=recipe.name,
        weights=weights,
        dataset=dataset,
        out=out,
        split=split,
        limit=limit,
        batch_size=batch_size,
        precision=precision,
        storage=storage,
        device=device,
        workers=workers,
    )
    loaded = load_weights(recipe, weights)
    header = feature_header(recipe, loaded, manifest.name)
    stamps = file_stamps(entries, manifest.image_root)
    ids = [entry.id for entry in entries]
    with ShardBuild(out, header, ids, rows_per_shard, compress, stamps) as build:
        log_done(
            f"{len(entries)} rows of {recipe.shape} {storage}: "
            f"{len(entries) * header.row_bytes / 1e6:.1f} MB in {build.plan.shards} shards; "
            f"{build.rows_done} rows are done"
        )
        for text in build.damaged:
            log_done(f"will be made again: {text}")
        for folder in build.other_work():
            log_done(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
        before, started = build.rows_done, time.monotonic()
        try:
            with progress_of(recipe.name, "image") as progress:
                index = extract_features(
                    build,
                    entries,
                    manifest.image_root,
                    FeatureNetwork(recipe, loaded.state, device),
                    batch_size,
                    workers,
                    progress,
                )
        except KeyboardInterrupt:
            log_done(
                f"interrupted: {build.rows_done} of {len(entries)} rows are kept in {build.work}; "
                "the same command goes on from there"
            )
            ctx.exit(FAILED)
    seconds = time.monotonic() - started
    computed = len(entries) - before
    log_done(
        f"{index.rows} rows {recipe.shape} in {len(index.shards)} shards in {out}, recipe "
        f"{header.recipe_hash}; {computed} computed in {seconds:.1f} s "
        f"({computed / max(seconds, 1e-9):.1f} images/s), {index.failed_rows} failed"
    )
    if index.failed_rows:
        for image_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {image_id}: {status}: {reason}")
        log_done(f"{index.failed_rows} of {index.rows} rows failed; they keep their ids as NaN")
        ctx.exit(SOME_ROWS_FAILED)
