"""`pipeline shards`: describe, verify, index, convert, merge and share feature shards."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.convert.layouts import DEFAULT_ARRAYS, EXPORTS, IMPORTS
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Storage
from stages.command import COUNT, PATH, Answer, Decorator, Group
from stages.console import CONSOLE, FAILED, OUTPUT, log_done, printable
from stages.options import JSON, option_of
from stages.shards_exchange import pull_command, push_command

if TYPE_CHECKING:
    from pipeline.store.shards.index import FeatureIndex


ROWS_PER_SHARD, COMPRESS = (option_of(Storage, name) for name in ("rows_per_shard", "compress"))


def _path(name: str, text: str) -> Decorator:
    return click.option(name, type=PATH, help=text)


def _out(text: str) -> Decorator:
    return click.option("--out", type=OUTPUT, help=text, required=True)


@click.group(cls=Group)
def shards() -> None:
    """Describe, verify, index, convert, merge and share feature shards.

    docs/shards.md and docs/sharing.md have examples of each command.

    \b
    Example:
      pipeline shards verify data/features/scenes/efficientnet-lite0-pool
    """


shards.add_command(push_command)
shards.add_command(pull_command)


@shards.command(cls=Answer)
@click.argument("path", type=PATH)
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
@click.argument("path", type=PATH)
@click.option(
    "--quick", is_flag=True, help="Check only structure, ids and counts; do not read features."
)
@_path("--images-of", "Dataset: also compare the CRC-32 of its images or captions.")
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

    started = time.monotonic()
    verified = verify(path, quick=quick, images_of=images_of, monitor=CONSOLE)
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(verified)}, indent=2))
    else:
        for error in verified.faults:
            click.echo(printable(str(error)))
    log_done(f"{path}: {verified.counts()}, {time.monotonic() - started:.1f} s")
    for line in verified.notes():
        log_done(line)
    if verified.faults:
        ctx.exit(FAILED)


@shards.command("index")
@click.argument("path", type=PATH)
@click.option(
    "--rows-per-shard",
    type=COUNT,
    help="Planned rows per shard, for a set of one shard written with another value than the "
    "default.",
)
def index_command(path: Path, rows_per_shard: int | None) -> None:
    """Rebuild index.json from the shards of a folder, which are all verified.

    \b
    Example:
      pipeline shards index data/features/scenes/efficientnet-lite0-pool
    """
    from pipeline.store.shards.index import INDEX_FILE, rebuild_index

    started = time.monotonic()
    _log_set(path / INDEX_FILE, rebuild_index(path, rows_per_shard, monitor=CONSOLE), started)


@shards.command("export")
@click.argument("path", type=PATH)
@click.option(
    "--to", type=click.Choice([*EXPORTS]), help="Layout.  [default: by the suffix of --out]"
)
@_out("File to write.")
@_path("--ids", "File with one id per line: export these rows, in this order.  [default: all]")
@click.option("--repeat", type=COUNT, default=1, help="npy: copies of each row; 5 for VSE++.")
@click.option("--copy", is_flag=True, help="h5: copy the rows instead of referring to the shards.")
@click.option(
    "--compress", is_flag=True, help="h5 with --copy or --ids: compress in small gzip chunks."
)
@click.option("--allow-failed", is_flag=True, help="Write failed rows as NaN, or null in tables.")
@_path("--dataset", "parquet, arrow: prepared dataset whose splits and captions become columns.")
def export_command(
    path: Path, out: Path, to: str | None, dataset: Path | None, **options: Any
) -> None:
    """Export a feature folder, or an embedding file, to the layout of another program.

    npy: an array, and its ids as text; NAME_ims.npy in the layout of VSE++ and SCAN. parquet,
    arrow: a table with id, split, captions, status, reason and vector; for an embedding file with
    id, side, image_id, split, captions and vector. h5: one HDF5 file, which refers to the shards
    or is a copy. safetensors: features, with ids in the metadata. vqa: the layout of pytorch-vqa.

    \b
    Examples:
      pipeline shards export data/features/scenes/efficientnet-lite0-pool \\
          --dataset data/scenes --out exports/scenes.parquet
      pipeline shards export data/features/scenes/efficientnet-lite0-pool \\
          --to npy --repeat 5 --out exports/scenes_ims.npy
      pipeline shards export data/embeddings/scenes/vsepp.h5 --out exports/vsepp.parquet
    """
    started = time.monotonic()
    if path.is_file():
        from pipeline.retrieval.embedding_table import export_embeddings

        if any(options[name] for name in options if name != "repeat") or options["repeat"] > 1:
            raise WrongUsage("an embedding file accepts only --to, --dataset and --out")
        rows = export_embeddings(path, out, to=to, dataset=dataset, monitor=CONSOLE)
    else:
        from pipeline.store.convert.export import export

        rows = export(path, out, to=to, dataset=dataset, **options, monitor=CONSOLE)
    log_done(f"{out}: {rows} rows, {time.monotonic() - started:.1f} s")


@shards.command("import")
@click.argument("source", type=PATH)
@click.option("--format", "layout", required=True, type=click.Choice([*IMPORTS]), help="Layout.")
@_out("Output folder of the shards.")
@_path("--ids", "npy, mat: file with one id per line, or a Karpathy dataset.json.")
@click.option("--every", type=COUNT, default=1, help="npy: rows per image; 5 in files for VSE++.")
@click.option(
    "--array",
    help="Name of the array in the source.  "
    f"[default: {', '.join(f'{array} ({name})' for name, array in DEFAULT_ARRAYS.items())}]",
)
@click.option("--axes", help='Names of the axes, such as "row, region, channel".')
@click.option("--dataset-name", "dataset", required=True, help="Dataset that the ids belong to.")
@click.option(
    "--recipe-note",
    "note",
    default="",
    show_default=False,
    help="How the features were computed, if known; recorded in the recipe.",
)
@ROWS_PER_SHARD
@COMPRESS
def import_command(source: Path, out: Path, **options: Any) -> None:
    """Import features of another program as feature shards.

    npy: *_ims.npy of VSE++ or SCAN. mat: Karpathy's vgg_feats.mat. bottom-up: the TSV with a
    fixed number of boxes, or a folder of .npz files. groups: HDF5 with one group per image.

    \b
    Example:
      pipeline shards import f30k_precomp/test_ims.npy --format npy --every 5 \\
          --ids f30k_precomp/test_ids.txt --dataset-name flickr30k --out data/features/f30k-test
    """
    from pipeline.store.convert.importers.import_features import import_features

    started = time.monotonic()
    _log_set(out, import_features(source, out, **options, monitor=CONSOLE), started)


@shards.command("merge")
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="DIR DIR...")
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

    started = time.monotonic()
    _log_set(out, merge(folders, out, **options, monitor=CONSOLE), started)


@shards.command()
@click.argument("path", type=PATH)
@click.option("--licence", help="Licence of the images and captions.")
@_path("--dataset", "Prepared dataset, which names its licence and source.")
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


def _log_set(path: Path, index: "FeatureIndex", started: float) -> None:
    log_done(f"{path}: {index.describe()}, {time.monotonic() - started:.1f} s")
