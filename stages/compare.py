"""`pipeline compare`: whether one experiment is better than another, by a paired test."""

from pathlib import Path

import click

from pipeline.experiments.layout import Layout
from stages.console import log_settings
from stages.experiment import layout_of


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--dataset", type=click.Path(path_type=Path), help="[default: that of params.yaml]")
@click.option("--protocol", default="all", show_default=True, help="As of `pipeline evaluate`.")
@click.option(
    "--captions-per-image",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Captions of an image that count, the first ones; 0 counts all.",
)
def compare(
    first: str, second: str, dataset: Path | None, protocol: str, captions_per_image: int
) -> None:
    """Compare the rsum of two experiments or ensembles on the same test images.

    Both are names, of which all seeds count that `pipeline run --seeds` has trained, or embedding
    files. A paired bootstrap draws images, and seeds where there are several, anew.

    \b
    Examples:
      pipeline compare vsepp vse0 --dataset data/flickr8k
      pipeline compare mine.h5 theirs.h5
    """
    # Here, as the job below: what they import takes longer than --help should.
    from pipeline.retrieval.compare import compare as compare_files
    from stages.params import load_params

    layout = layout_of(dataset, load_params().dataset)
    files = [_embeddings(name, layout) for name in (first, second)]
    log_settings(
        "compare", first=first, second=second, protocol=protocol,
        captions_per_image=captions_per_image or "all",
    )  # fmt: skip
    found = compare_files(*files, protocol=protocol, captions_per_image=captions_per_image or None)
    for name, sums in ((first, found.first), (second, found.second)):
        each = f" (mean of {', '.join(f'{s:.1f}' for s in sums)})" if len(sums) > 1 else ""
        click.echo(f"{name}: rsum {sum(sums) / len(sums):.1f}{each}")
    verdict = "decided" if found.decided else "too close to call"
    click.echo(
        f"difference {found.margin:+.1f}, 95 % interval {found.low:+.1f} to {found.high:+.1f}, "
        f"p {found.p:.3f}, over {found.num_images} images: {verdict}"
    )


def _embeddings(name: str, layout: Layout) -> list[Path]:
    """Return the embedding files of all seeds of a name, or the file that it is."""
    return [Path(name)] if name.endswith(".h5") else layout.seeds(name)
