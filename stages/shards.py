"""`pipeline shards`: describe, verify, index, convert, merge and share feature shards."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.convert.layouts import DEFAULT_ARRAYS, EXPORTS, IMPORTS
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Storage
from pipeline.store.objects.urls import shown
from stages.command import COUNT, FEATURES, PATH, Answer, Decorator, Group, flag, option
from stages.console import CONSOLE, FAILED, OUTPUT, elapsed, log_done, printable
from stages.options import JSON, option_of
from stages.shards_exchange import pull_command, push_command

if TYPE_CHECKING:
    from pipeline.store.shards.index import FeatureIndex


ROWS_PER_SHARD, COMPRESS = (option_of(Storage, name) for name in ("rows_per_shard", "compress"))


def _out(text: str) -> Decorator:
    return option("--out", text, OUTPUT, required=True)


@click.group(cls=Group)
def shards() -> None:
    """Describe, verify, index, convert, merge and share feature shards.

    docs/format.md and docs/sharing.md have examples of each command.

    \b
    Example:
      pipeline shards verify data/features/scenes/efficientnet-lite0-pool
    """


shards.add_command(push_command)
shards.add_command(pull_command)


@shards.command(cls=Answer)
@click.argument("path", type=FEATURES)
@JSON
def info(path: Path, as_json: bool) -> None:
    """Print the contents of a feature folder or a shard, its origin, and code that reads it.

    \b
    Example:
      pipeline shards info data/features/scenes/efficientnet-lite0-pool
    """
    from pipeline.store.shards.describe import describe, summary_of

    if as_json:
        click.echo(json.dumps(summary_of(path), indent=2))
        return
    for line in describe(path):
        click.echo(printable(line))


@shards.command("verify", cls=Answer)
@click.argument("path", type=FEATURES)
@flag("--quick", "Check only structure, ids and counts; do not read features.")
@option("--images-of", "Dataset whose images or captions are also compared, by CRC-32.", PATH)
@JSON
@click.pass_context
def verify_command(
    ctx: click.Context, path: Path, quick: bool, images_of: Path | None, as_json: bool
) -> None:
    """Verify a feature folder or a shard, and list every error.

    Prints one line per error, with file, row and id. The exit status is 1 if there is an error.

    \b
    Example:
      pipeline shards verify data/features/scenes/efficientnet-lite0-pool
    """
    from pipeline.store.shards.verify import verify

    verified = verify(path, quick=quick, images_of=images_of, monitor=CONSOLE)
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(verified)}, indent=2))
    else:
        for error in verified.faults:
            click.echo(printable(str(error)))
    log_done(f"{shown(path)}: {verified.counts()}, {elapsed():.1f} s")
    for line in verified.notes():
        log_done(line)
    if verified.faults:
        ctx.exit(FAILED)


@shards.command("index")
@click.argument("path", type=PATH)
@option(
    "--rows-per-shard",
    "Planned rows per shard, for a set of one shard written with another value than the default.",
    COUNT,
)
def index_command(path: Path, rows_per_shard: int | None) -> None:
    """Verify all shards of a folder and rebuild its index.json.

    \b
    Example:
      pipeline shards index data/features/scenes/efficientnet-lite0-pool
    """
    from pipeline.store.shards.index import INDEX_FILE, rebuild_index

    _log_set(path / INDEX_FILE, rebuild_index(path, rows_per_shard, monitor=CONSOLE))


@shards.command("export")
@click.argument("path", type=FEATURES)
@option("--to", "Layout.  [default: by the suffix of --out]", click.Choice([*EXPORTS]))
@_out("File to write; zarr and lance: folder.")
@option(
    "--ids", "File with one id per line: export these rows, in this order.  [default: all]", PATH
)
@option("--repeat", "npy: copies of each row; 5 for VSE++.", COUNT, default=1)
@flag("--copy", "h5: copy the rows instead of referring to the shards.")
@flag("--compress", "h5 with --copy or --ids: compress in small gzip chunks.")
@flag("--allow-failed", "Write failed rows as NaN, or null in tables.")
@option(
    "--dataset",
    "parquet, arrow, lance: prepared dataset whose splits and captions become columns.",
    PATH,
)
@option("--url", "kerchunk: folder or URL where readers find the shards.  [default: PATH]")
def export_command(
    path: Path, out: Path, to: str | None, dataset: Path | None, **options: Any
) -> None:
    """Export a feature folder, or an embedding file, to the layout of another program.

    npy: an array, and its ids as text; NAME_ims.npy in the layout of VSE++ and SCAN. parquet,
    arrow: a table with id, split, captions, status, reason and vector; for an embedding file with
    id, side, image_id, split, captions and vector. h5: one HDF5 file, which refers to the shards
    or is a copy. safetensors: features, with ids in the metadata. vqa: the layout of pytorch-vqa.
    kerchunk: a small JSON file of byte ranges, with which fsspec, Zarr and xarray read the shards
    in place. zarr: a Zarr group. lance: a Lance table, with the columns of parquet.

    \b
    Examples:
      pipeline shards export data/features/scenes/efficientnet-lite0-pool \\
          --dataset data/scenes --out exports/scenes.parquet
      pipeline shards export data/features/scenes/efficientnet-lite0-pool \\
          --to npy --repeat 5 --out exports/scenes_ims.npy
      pipeline shards export data/embeddings/scenes/vsepp.h5 --out exports/vsepp.parquet
    """
    if path.is_file():
        from pipeline.retrieval.embedding_table import export_embeddings

        if any(options[name] for name in options if name != "repeat") or options["repeat"] > 1:
            raise WrongUsage("the export of embeddings accepts only --to, --dataset and --out")
        rows = export_embeddings(path, out, to=to, dataset=dataset, monitor=CONSOLE)
    else:
        from pipeline.store.convert.export import export

        rows = export(path, out, to=to, dataset=dataset, **options, monitor=CONSOLE)
    log_done(f"{out}: {rows} rows, {elapsed():.1f} s")


@shards.command("import")
@click.argument("source", type=PATH)
@option("--format", "Layout.", click.Choice([*IMPORTS]), name="layout", required=True)
@_out("Output folder of the shards.")
@option(
    "--ids",
    "Row ids, required for npy and mat, optional for hdf5, parquet and safetensors: file with one "
    "id per line, a Karpathy dataset.json, or a Parquet table.",
    PATH,
)
@option("--every", "npy: rows per image; 5 in files for VSE++.", COUNT, default=1)
@option(
    "--array",
    "Name of the array in the source.  "
    f"[default: {', '.join(f'{array} ({name})' for name, array in DEFAULT_ARRAYS.items())}]",
)
@option("--axes", 'Names of the axes, such as "row, region, channel".')
@click.option(
    "--dataset",
    "--dataset-name",
    "dataset",
    help="Prepared dataset, whose image ids replace image paths among the row ids; or its name.",
    metavar="DIR|NAME",
    required=True,
)
@flag("--captions", "The rows are of captions: the k-th of an image has the id IMAGE#k, from 0.")
@option(
    "--recipe-note",
    "How the features were computed, if known; recorded in the recipe.",
    name="note",
    default="",
    show_default=False,
)
@ROWS_PER_SHARD
@COMPRESS
def import_command(source: Path, out: Path, **options: Any) -> None:
    """Import features of another program as feature shards.

    npy: *_ims.npy of VSE++ or SCAN. mat: Karpathy's vgg_feats.mat. bottom-up: the TSV with a
    fixed number of boxes, or a folder of .npz files. groups: HDF5 with one group per image. hdf5,
    parquet, safetensors: one array or column of rows and one of ids; HDF5 also with one dataset per
    image.

    \b
    Example:
      pipeline shards import f30k_precomp/test_ims.npy --format npy --every 5 \\
          --ids f30k_precomp/test_ids.txt --dataset-name flickr30k --out data/features/f30k-test
    """
    from pipeline.store.convert.importers.import_features import import_features

    _log_set(out, import_features(source, out, **options, monitor=CONSOLE))


@shards.command("merge")
@click.argument("folders", nargs=-1, required=True, type=FEATURES, metavar="DIR DIR...")
@_out("Output folder of the shards.")
@ROWS_PER_SHARD
@COMPRESS
def merge_command(folders: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Merge feature folders of one recipe, weights and dataset, in the given order.

    \b
    Example:
      pipeline shards merge features/train features/val features/test --out features/all
    """
    from pipeline.store.convert.merge import merge

    _log_set(out, merge(folders, out, **options, monitor=CONSOLE))


@shards.command("convert")
@click.argument("path", type=PATH)
@_out("Output folder of the shards.")
def convert_command(path: Path, out: Path) -> None:
    """Convert a feature folder to the current version of the format (docs/format.md).

    Rows, shards and content_sha256 are the same; the folder is left unchanged.

    \b
    Example:
      pipeline shards convert features/old --out features/new
    """
    from pipeline.store.convert.new_version import convert_features

    if (index := convert_features(path, out, monitor=CONSOLE)) is not None:
        _log_set(out, index)


@shards.command()
@click.argument("path", type=PATH)
@option("--licence", "Licence of the images and captions.")
@option("--dataset", "Prepared dataset, which names its licence and source.", PATH)
def card(path: Path, licence: str | None, dataset: Path | None) -> None:
    """Write SHARDS.md and croissant.json, for readers and dataset catalogues, to a feature folder.

    They state contents, recipe, licence and checksums, and how to read and cite the features.

    \b
    Example:
      pipeline shards card data/features/scenes/efficientnet-lite0-pool --dataset data/scenes
    """
    from pipeline.store.share.cards.card import write_card

    written = write_card(path, licence=licence, dataset=dataset, monitor=CONSOLE)
    log_done(f"{written} and croissant.json written")


def _log_set(path: Path, index: "FeatureIndex") -> None:
    log_done(f"{path}: {index.describe()}, {elapsed():.1f} s")
