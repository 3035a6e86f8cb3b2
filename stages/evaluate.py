"""`pipeline evaluate`: an embedding file becomes a recall table."""

from pathlib import Path

import click

from pipeline.retrieval.protocols import PROTOCOLS
from stages.console import CONSOLE, OUTPUT, log_settings


@click.command()
@click.argument("embeddings", type=click.Path(path_type=Path), metavar="EMBEDDINGS.h5")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the table.")
@click.option(
    "--protocol",
    metavar="NAME",
    help=f"{', '.join(PROTOCOLS)} or first-N: checks what the file holds, and adds mean inverted "
    "rank, chance levels and 95 % intervals.  [default: all, without these]",
)
@click.option(
    "--captions-per-image",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Captions of an image that count, the first ones; 0 counts all.",
)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
def evaluate(
    embeddings: Path, out: Path, protocol: str | None, captions_per_image: int, device: str
) -> None:
    """Rank anybody's embedding file in both directions and write recall.json and recall.csv.

    docs/evaluation.md describes the file, the protocols, and defines each figure.

    \b
    Examples:
      pipeline evaluate data/embeddings/scenes/qian2018-baseline.h5 \\
          --out data/evaluations/scenes/qian2018-baseline
      pipeline evaluate coco.h5 --protocol coco-1k --out data/evaluations/coco/coco-1k
    """
    # Here, so that --help needs neither numpy nor h5py.
    from pipeline.retrieval.evaluate import evaluate as evaluate_file
    from pipeline.retrieval.tables import markdown_table

    log_settings(
        "evaluate",
        embeddings=embeddings,
        out=out,
        protocol=protocol,
        captions_per_image=captions_per_image or "all",
        device=device,
    )
    evaluation = evaluate_file(
        embeddings,
        out,
        protocol=protocol,
        captions_per_image=captions_per_image or None,
        device=device,
        monitor=CONSOLE,
    )
    click.echo(markdown_table({embeddings.stem: evaluation.table}), nl=False)
