"""`pipeline shards`: describe, check, index, convert and join feature shards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pipeline.datasets.manifest import read_manifest
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.index import INDEX_FILE, FeatureIndex, rebuild_index
from pipeline.shards.tools.dataset_card import CARD_FILE, write_card
from pipeline.shards.tools.describe import describe
from pipeline.shards.tools.export import (
    export_h5_copy,
    export_h5_view,
    export_npy,
    export_safetensors,
    export_vqa,
)
from pipeline.shards.tools.importers.arrays import MatFeatures, NpyFeatures
from pipeline.shards.tools.importers.bottom_up import NpzFolderFeatures, TsvFeatures
from pipeline.shards.tools.importers.groups import GroupFeatures
from pipeline.shards.tools.importers.id_files import read_ids
from pipeline.shards.tools.importers.source import ImportSource, import_features
from pipeline.shards.tools.merge import merge
from pipeline.shards.tools.verify import source_crc_of, verify
from stages.console import FAILED, OUTPUT, log_done, log_settings, printable, progress_of

EXPORTS = ("npy", "h5", "safetensors", "vqa")
IMPORTS = ("npy", "mat", "bottom-up", "groups")
# What --array means when it is not given.
_ARRAY = {"mat": "feats", "bottom-up": "features", "groups": "global_descriptor"}

_PATH = click.Path(path_type=Path)


def _option(name: str, text: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(name, type=_PATH, help=text, **settings)


def _out(text: str) -> Callable[[Any], Any]:
    return click.option("--out", type=OUTPUT, help=text, required=True)


_rows_per_shard = click.option(
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
_compress = click.option(
    "--compress", is_flag=True, help="gzip in small chunks: smaller, slower to read."
)


@click.group()
def shards() -> None:
    """Describe, check, index, convert and join feature shards, anybody's.

    docs/shards.md shows each command at work.

    \b
    Example:
      pipeline shards verify data/features/scenes/efficientnet-lite0-pool
    """


@shards.command()
@click.argument("path", type=_PATH)
def info(path: Path) -> None:
    """Say what is in a feature folder or a shard, how it was made and how to read it.

    \b
    Example:
      pipeline shards info data/features/scenes/efficientnet-lite0-pool
    """
    for line in describe(path):
        click.echo(printable(line))


@shards.command("verify")
@click.argument("path", type=_PATH)
@click.option("--quick", is_flag=True, help="Structure, ids and counts only; no features are read.")
@_option("--images-of", "Dataset: compare the CRC-32 of its images or captions too.")
@click.pass_context
def verify_command(ctx: click.Context, path: Path, quick: bool, images_of: Path | None) -> None:
    """Check a feature folder or a shard, and list every fault.

    Each fault is a line on stdout that names file, row and id. The exit status is 1 if there is
    any.

    \b
    Example:
      pipeline shards verify data/features/scenes/efficientnet-lite0-pool
    """
    log_settings("shards verify", path=path, quick=quick, images_of=images_of)
    started = time.monotonic()
    source_crc = source_crc_of(read_manifest(images_of)) if images_of else None
    with progress_of("verify", "row") as progress:
        found = verify(path, quick, source_crc, progress)
    for fault in found.faults:
        click.echo(printable(str(fault)))
    sources = f", {found.sources} sources compared" if images_of else ""
    log_done(
        f"{path}: {found.rows} rows checked{sources}, {len(found.faults)} faults, "
        f"{time.monotonic() - started:.1f} s"
    )
    if images_of and not found.sources:
        log_done("no row says what its source was (source_crc32 is 0): none could be compared")
    if quick:
        log_done("features and checksums were not read (--quick)")
    elif not found.indexed:
        log_done(f"without an {INDEX_FILE} only the rows' own checksums could be compared")
    if found.faults:
        ctx.exit(FAILED)


@shards.command("index")
@click.argument("path", type=_PATH)
@click.option(
    "--rows-per-shard",
    type=click.IntRange(1),
    help="Of a set of one shard that was made with another number than the default.",
)
def index_command(path: Path, rows_per_shard: int | None) -> None:
    """Make index.json again from the shards of a folder, all of which are checked.

    \b
    Example:
      pipeline shards index data/features/scenes/efficientnet-lite0-pool
    """
    log_settings("shards index", path=path, rows_per_shard=rows_per_shard)
    started = time.monotonic()
    with progress_of("index", "row") as progress:
        made = rebuild_index(path, rows_per_shard, progress)
    _log_set(path / INDEX_FILE, made, started)


@shards.command()
@click.argument("path", type=_PATH)
@click.option("--to", "form", required=True, type=click.Choice(EXPORTS), help="Layout.")
@_out("File to write; for npy its name ends in _ims.npy.")
@_option("--ids", "File with an id a line: these rows in this order.  [default: all]")
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="npy: each row so many times; 5 for VSE++.",
)
@click.option("--copy", is_flag=True, help="h5: copy the rows instead of pointing to the shards.")
@click.option("--compress", is_flag=True, help="h5 with --copy or --ids: gzip in small chunks.")
@click.option("--allow-failed", is_flag=True, help="Write failed rows as NaN.")
def export(
    path: Path,
    form: str,
    out: Path,
    ids: Path | None,
    repeat: int,
    copy: bool,
    compress: bool,
    allow_failed: bool,
) -> None:
    """Write a feature folder in a layout that other programs read.

    npy: what VSE++ and SCAN read. h5: one HDF5 file, which points to the shards or is a copy.
    safetensors: features, and ids in the metadata. vqa: what pytorch-vqa reads.

    \b
    Example:
      pipeline shards export data/features/scenes/efficientnet-lite0-pool \\
          --to npy --repeat 5 --out exports/scenes_ims.npy
    """
    view = form == "h5" and not copy and ids is None
    if repeat > 1 and form != "npy":
        raise click.UsageError("--repeat goes with --to npy")
    if copy and form != "h5":
        raise click.UsageError("--copy goes with --to h5")
    if compress and (form != "h5" or view):
        raise click.UsageError("--compress goes with --to h5 and --copy or --ids")
    log_settings("shards export", path=path, to=form, out=out, ids=ids, repeat=repeat)
    started = time.monotonic()
    features = FeatureSet(path)
    asked = read_ids(ids) if ids else features.ids
    with progress_of("export", "row") as progress:
        if form == "npy":
            export_npy(features, out, asked, repeat, allow_failed, progress)
        elif view:
            features.blocks(asked, allow_failed)
            export_h5_view(features, out)
        elif form == "h5":
            export_h5_copy(features, out, asked, allow_failed, compress, progress)
        elif form == "safetensors":
            export_safetensors(features, out, asked, allow_failed, progress)
        else:
            export_vqa(features, out, asked, allow_failed, progress)
    log_done(f"{out}: {len(asked)} rows, {time.monotonic() - started:.1f} s")


@shards.command("import")
@click.argument("source", type=_PATH)
@click.option("--format", "form", required=True, type=click.Choice(IMPORTS), help="Layout.")
@_out("Folder of the shards.")
@_option("--ids", "npy, mat: file with an id a line, or a Karpathy dataset.json.")
@click.option(
    "--every",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="npy: rows of each image; 5 in files made for VSE++.",
)
@click.option(
    "--array",
    help="Name of the array in the source.  "
    "[default: feats (mat), features (bottom-up), global_descriptor (groups)]",
)
@click.option("--axes", help='Names of the axes, such as "row, region, channel".')
@click.option("--dataset-name", required=True, help="Dataset that the ids belong to.")
@click.option("--recipe-note", default="", help="What is known of the making; kept in the recipe.")
@_rows_per_shard
@_compress
def import_command(
    source: Path,
    form: str,
    out: Path,
    ids: Path | None,
    every: int,
    array: str | None,
    axes: str | None,
    dataset_name: str,
    recipe_note: str,
    rows_per_shard: int | None,
    compress: bool,
) -> None:
    """Make feature shards from features that another program wrote.

    npy: *_ims.npy of VSE++ or SCAN. mat: Karpathy's vgg_feats.mat. bottom-up: the TSV with a
    fixed number of boxes, or a folder of .npz files. groups: HDF5 with a group an image.

    \b
    Example:
      pipeline shards import f30k_precomp/test_ims.npy --format npy --every 5 \\
          --ids f30k_precomp/test_ids.txt --dataset-name flickr30k --out data/features/f30k-test
    """
    if (ids is None) == (form in ("npy", "mat")):
        raise click.UsageError("--ids goes with --format npy and mat, and must be given there")
    if every > 1 and form != "npy":
        raise click.UsageError("--every goes with --format npy")
    if array and form == "npy":
        raise click.UsageError("--array does not go with --format npy: it has one array only")
    log_settings("shards import", source=source, format=form, out=out, ids=ids, every=every)
    started = time.monotonic()
    opened = _open_foreign(source, form, read_ids(ids) if ids else [], every, array)
    with progress_of("import", "row") as progress:
        made = import_features(
            opened, out, dataset_name, recipe_note, axes, rows_per_shard, compress, progress
        )
    _log_set(out, made, started)


@shards.command("merge")
@click.argument("folders", nargs=-1, required=True, type=_PATH, metavar="DIR DIR...")
@_out("Folder of the shards.")
@_rows_per_shard
@_compress
def merge_command(
    folders: tuple[Path, ...], out: Path, rows_per_shard: int | None, compress: bool
) -> None:
    """Join feature folders of one recipe, weights and dataset, in the order given.

    \b
    Example:
      pipeline shards merge features/train features/val features/test --out features/all
    """
    log_settings("shards merge", folders=" ".join(map(str, folders)), out=out)
    started = time.monotonic()
    sets = [FeatureSet(folder) for folder in folders]
    with progress_of("merge", "row") as progress:
        made = merge(sets, out, rows_per_shard, compress, progress)
    if repeated := sum(len(one) for one in sets) - made.rows:
        log_done(f"{repeated} rows were the same in several folders and are kept once")
    _log_set(out, made, started)


@shards.command()
@click.argument("path", type=_PATH)
@click.option("--licence", help="Who may use the images and captions.")
@_option("--dataset", "Prepared dataset, which names its licence and source.")
def card(path: Path, licence: str | None, dataset: Path | None) -> None:
    """Write SHARDS.md into a feature folder: contents, recipe, checksums, how to read and cite.

    \b
    Example:
      pipeline shards card data/features/scenes/efficientnet-lite0-pool --dataset data/scenes
    """
    log_settings("shards card", path=path, dataset=dataset, licence=licence)
    manifest = read_manifest(dataset) if dataset else None
    if manifest:
        licence = licence or manifest.licence
    write_card(path, licence, manifest.source if manifest else None)
    log_done(f"{path / CARD_FILE} written")
    if licence is None:
        log_done("no licence is stated in it; give --dataset or --licence")


def _open_foreign(
    source: Path, form: str, ids: list[str], every: int, array: str | None
) -> ImportSource:
    if form == "npy":
        return NpyFeatures(source, ids, every)
    name = array or _ARRAY[form]
    if form == "mat":
        return MatFeatures(source, ids, name)
    if form == "groups":
        return GroupFeatures(source, name)
    return NpzFolderFeatures(source, name) if source.is_dir() else TsvFeatures(source, name)


def _log_set(path: Path, index: FeatureIndex, started: float) -> None:
    header = index.header
    log_done(
        f"{path}: {index.rows} rows {header.row_shape} {header.dtype} in {len(index.shards)} "
        f"shards, {index.failed_rows} failed, recipe {header.recipe_hash}, "
        f"{time.monotonic() - started:.1f} s"
    )
