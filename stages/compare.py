"""`pipeline compare`: whether one experiment is better than another, by a paired test."""

import json
from pathlib import Path

import click

from pipeline.experiments.layout import Layout
from stages.command import Answer
from stages.experiment import layout_of
from stages.options import JSON


@click.command(cls=Answer)
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
@JSON
def compare(
    first: str,
    second: str,
    dataset: Path | None,
    protocol: str,
    captions_per_image: int,
    as_json: bool,
) -> None:
    """Compare the rsum of two experiments or ensembles on the same test images.

    Both are names, of which all seeds count that `pipeline run --seeds` has trained, or embedding
    files. A paired bootstrap draws images, and seeds where there are several, anew. Of fewer than
    50 images there is an exact interval and no verdict.

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
    found = compare_files(*files, protocol=protocol, captions_per_image=captions_per_image or None)
    if as_json:
        answer = {
            "first": first, "second": second, "first_rsum": found.first,
            "second_rsum": found.second, "difference": found.margin, "low": found.low,
            "high": found.high, "p": found.p, "num_images": found.num_images,
            "decided": found.decided,
        }  # fmt: skip
        click.echo(json.dumps(answer, indent=2))
        return
    for name, sums in ((first, found.first), (second, found.second)):
        each = f" (mean of {', '.join(f'{s:.1f}' for s in sums)})" if len(sums) > 1 else ""
        click.echo(f"{name}: rsum {sum(sums) / len(sums):.1f}{each}")
    click.echo(
        f"difference {found.margin:+.1f}, 95 % interval {found.low:+.1f} to {found.high:+.1f}, "
        f"p {found.p:.3f}, over {found.num_images} images: {found.verdict}"
    )


def _embeddings(name: str, layout: Layout) -> list[Path]:
    """Return the embedding files of all seeds of a name, or the file that it is."""
    return [Path(name)] if name.endswith(".h5") else layout.seeds(name)
