"""`pipeline extract`: the images of a dataset become feature shards."""

import time
import warnings
from pathlib import Path
from typing import Any

import click

from pipeline.images.engine import ENGINES
from pipeline.recipes import PRECISIONS, STORAGES
from stages.cluster import cluster_options
from stages.console import CONSOLE, OUTPUT, SOME_ROWS_FAILED, log_done, log_settings

_REASONS_SHOWN = 5


@click.command()
@click.option("--backbone", help="Backbone, for its default recipe; see `pipeline recipes`.")
@click.option("--recipe", help="Recipe by name; see `pipeline recipes`.")
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the shards.")
@click.option(
    "--regions",
    type=click.Path(path_type=Path),
    help="Folder of proposals: features of these regions, not of whole images.",
)
@click.option(
    "--context",
    type=click.FloatRange(0),
    help="Of --regions: added on every side before a region is cut, as a share of its sides.  "
    "[default: 0]",
)
@click.option("--split", help="Only the images of this split.  [default: all]")
@click.option("--limit", type=click.IntRange(1), help="Only the first N images.  [default: all]")
@click.option(
    "--weights",
    default="imagenet",
    show_default=True,
    help="imagenet, PATH of a .pth, .pt, .safetensors or .caffemodel file, or random:SEED.",
)
@click.option(
    "--trained-on",
    metavar="NAME[, NAME...]",
    help="Datasets that the weights were trained on, for the record.  [default: as is known of the "
    "recipe's own]",
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
    "--trust-stamps",
    is_flag=True,
    help="Do not read pictures of a finished output again whose size and time are as when they "
    "were last read with this option.",
)
@click.option(
    "--add",
    is_flag=True,
    help="Add images that the dataset, prepared again, has and a finished output lacks, in new "
    "shards; those it has stay.",
)
@click.option(
    "--frames",
    help="Of clips: every:SECONDS, fps:NUMBER, even:NUMBER or all.  [default: the recipe's]",
)
@click.option(
    "--over-frames",
    type=click.Choice(["mean", "max", "halves"]),
    help="Of clips: how outputs are joined over time.  [default: mean]",
)
@click.option(
    "--codebook",
    type=click.Path(path_type=Path),
    help="Of sound words: taken from this file, or put there once fitted.  [default: beside OUT, "
    "of the training split]",
)
@cluster_options
@click.pass_context
def extract(
    ctx: click.Context,
    backbone: str | None,
    recipe: str | None,
    dataset: Path,
    out: Path,
    regions: Path | None,
    context: float | None,
    frames: str | None,
    over_frames: str | None,
    codebook: Path | None,
    trust_stamps: bool,
    **options: Any,
) -> None:
    """Turn the images or clips of a prepared dataset, or regions, into feature shards.

    Missing, unreadable and refused images keep their row, with a status and a reason; the
    command then ends with exit status 3. The same command again goes on where it stopped; on a
    finished output it computes the rows whose pictures have changed since, and no others.

    With --workers or --scheduler the pending shards are spread over worker processes; --threads
    and --readers are then those of each worker.

    \b
    Examples:
      pipeline extract --backbone efficientnet-lite0 --dataset data/scenes \\
          --out data/features/scenes/efficientnet-lite0-pool
      pipeline extract --recipe efficientnet-lite0-pool --dataset data/msvd --frames every:0.5 \\
          --out data/features/msvd/efficientnet-lite0-pool
      pipeline extract --recipe mfcc-bow-1024 --dataset data/msrvtt \\
          --out data/features/msrvtt/mfcc-bow-1024
      pipeline extract --recipe efficientnet-lite0-roi-align --dataset data/scenes \\
          --regions data/proposals/scenes/grid \\
          --out data/features/scenes/efficientnet-lite0-roi-align@grid
    """
    # Here, since `--help` needs no torch.
    from pipeline.clips.extract import extract_clips
    from pipeline.datasets.manifest import read_media
    from pipeline.images import extract as job
    from pipeline.regions.features import extract_regions
    from pipeline.shards.feature_set import FeatureSet

    if (name := recipe or backbone) is None or (recipe and backbone):
        raise click.UsageError("give --backbone NAME or --recipe NAME, one of them")
    if context is not None and regions is None:
        raise click.UsageError("--context is of --regions")
    # Pillow warns of pictures that are then refused, and of oddities in files that it reads.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    given = {option: value for option, value in options.items() if value}
    log_settings(
        "extract", recipe=name, dataset=dataset, regions=regions, out=out, frames=frames,
        over_frames=over_frames, codebook=codebook, trust_stamps=trust_stamps or None, **given,
    )  # fmt: skip
    started = time.monotonic()
    clips = regions is None and read_media(dataset) == "clips"
    if trust_stamps and (clips or regions is not None):
        raise click.UsageError("--trust-stamps is of whole pictures")
    if clips or frames or over_frames or codebook:
        index = extract_clips(
            dataset,
            out,
            recipe=name,
            frames=frames,
            over_frames=over_frames,
            codebook=codebook,
            monitor=CONSOLE,
            **options,
        )
    elif regions is None:
        index = job.extract(
            dataset, out, recipe=name, trust_stamps=trust_stamps, monitor=CONSOLE, **options
        )
    else:
        index = extract_regions(
            dataset,
            out,
            regions=regions,
            recipe=name,
            context=context or 0.0,
            monitor=CONSOLE,
            **options,
        )
    log_done(
        f"{index.rows} rows {index.header.row_shape} in {len(index.shards)} shards in {out}, "
        f"recipe {index.header.recipe_hash}, {time.monotonic() - started:.1f} s"
    )
    if index.failed_rows:
        for image_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {image_id}: {status}: {reason}")
        log_done(f"{index.failed_rows} of {index.rows} rows failed; they keep their rows, as NaN")
        ctx.exit(SOME_ROWS_FAILED)
