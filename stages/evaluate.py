"""`pipeline evaluate`: an embedding file becomes a recall table."""

import time
from pathlib import Path
from typing import Any

import click

from pipeline.files import write_json
from pipeline.hashing import sha256_of_file
from pipeline.report.data.provenance import PROVENANCE_FILE
from pipeline.report.data.tables import markdown_table, write_recall
from pipeline.retrieval.embeddings import read_embeddings
from pipeline.retrieval.protocols import PROTOCOLS, resolve_protocol
from pipeline.retrieval.protocols import evaluate as evaluate_by
from pipeline.retrieval.ranks import Ranker, rank_both_ways
from pipeline.retrieval.recall import recall_table
from stages.console import OUTPUT, log_done, log_settings


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
    help="The first so many captions of an image count; 0 counts all.",
)
@click.option("--device", default="cpu", show_default=True, help="A torch device, such as cuda.")
def evaluate(
    embeddings: Path, out: Path, protocol: str | None, captions_per_image: int, device: str
) -> None:
    """Rank anybody's embedding file in both directions and write recall.json and recall.csv.

    docs/evaluation.md describes the file, the protocols, and defines each figure.

    \b
    Examples:
      pipeline evaluate data/embeddings/qian2018-baseline.h5 --out data/reports/qian2018-baseline
      pipeline evaluate coco.h5 --protocol coco-1k --out data/reports/coco-1k
    """
    log_settings(
        "evaluate",
        embeddings=embeddings,
        out=out,
        protocol=protocol,
        captions_per_image=captions_per_image or "all",
        device=device,
    )
    number = captions_per_image or None
    asked = resolve_protocol(protocol, number) if protocol is not None else None
    rank = _ranker(device)
    started = time.monotonic()
    given = read_embeddings(embeddings)
    how: dict[str, Any] = {}
    if asked is None:
        table = recall_table(given, number, rank)
    else:
        evaluation = evaluate_by(given, asked, rank)
        table = evaluation.table
        how = {**evaluation.provenance, "folds": list(evaluation.folds)}
    write_recall(out, table)
    write_json(
        out / PROVENANCE_FILE,
        {
            "embeddings_sha256": sha256_of_file(embeddings),
            "similarity": given.similarity,
            "provenance": given.provenance,
            **how,
        },
    )
    log_done(
        f"{out}: {table['num_images']} of {len(given.image_ids)} images and "
        f"{table['num_captions']} of {len(given.caption_ids)} captions ranked by "
        f"{given.similarity} in {time.monotonic() - started:.1f} s"
    )
    click.echo(markdown_table({embeddings.stem: table}), nl=False)


def _ranker(device: str) -> Ranker:
    if device == "cpu":
        return rank_both_ways
    # Here, since torch takes seconds to import and numpy does the work of a processor.
    from pipeline.retrieval.on_device import rank_on

    return rank_on(device)
