"""`pipeline evaluate`: tables of embedding files and localization files."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from pipeline.retrieval.ranking.protocols import PROTOCOLS
from pipeline.store.errors import WrongUsage
from stages.command import Command
from stages.console import CONSOLE, OUTPUT
from stages.experiment import layout_of, require_made
from stages.options import JSON

OF_CLIPS = ("msvd", "trecvid-vtt")
"""Protocols that define their captions, so that published rows are comparable."""


@click.command(cls=Command)
@click.argument(
    "embeddings", type=click.Path(path_type=Path), metavar="[EMBEDDINGS.h5]", required=False
)
@click.option("--out", type=OUTPUT, help="Output folder; required with EMBEDDINGS.h5.")
@click.option(
    "--split",
    help="Split to rank in a file of several splits, or all.  [default: the only one]",
)
@click.option(
    "--protocol",
    metavar="NAME",
    help=f"{', '.join(PROTOCOLS)} or first-N: checks what the file holds, and adds mean inverted "
    "rank, chance levels and 95 % intervals, which fewer than 1,000 images have in any case; "
    "entities, for a file of `pipeline localize`.  "
    "[default: all, without these]",
)
@click.option(
    "--captions-per-image",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Use the first N captions of each image; 0 uses all.  msvd uses all, and trecvid-vtt one "
    "in each of its two sets.",
)
@click.option(
    "--dim",
    type=click.IntRange(1),
    metavar="N",
    help="Rank with the first N dimensions of the vectors, scaled to length 1.  [default: all]",
)
@click.option(
    "--nms",
    type=click.FloatRange(0, 1),
    help="Protocol entities: threshold of non-maximum suppression before average precision.  "
    "[default: 0.3]",
)
@click.option(
    "--max-pairs",
    type=click.IntRange(1),
    help="Maximum number of image-caption pairs; more are an error.  [default: 2e11]",
)
@click.option(
    "--leaks",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FEATURES",
    help="Features of all splits: log how many ranked images have a near-duplicate among the "
    "other images.",
)
@click.option(
    "--leaks-images",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="Prepared dataset or folder of the images of --leaks: confirm near-duplicates by "
    "comparing pixels, which also finds crops.",
)
@click.option(
    "--relevance",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Relevance judgments, such as eccv_image_to_caption.json or JSONL with query, item and "
    "grade: adds mAP@R, R-Precision and nDCG@K, and writes relevance.json.  Repeatable.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Torch device, such as cpu or cuda:1; auto is the best of this machine.",
)
@JSON
def evaluate(
    embeddings: Path | None,
    out: Path | None,
    split: str | None,
    protocol: str | None,
    captions_per_image: int,
    dim: int | None,
    nms: float | None,
    max_pairs: int | None,
    leaks: Path | None,
    leaks_images: Path | None,
    relevance: tuple[Path, ...],
    device: str,
    as_json: bool,
) -> None:
    """Rank an embedding file in both directions and write recall.json and recall.csv.

    Without a file, evaluates all experiments and ensembles of params.yaml, with output below data/.
    docs/evaluation.md describes the file and the protocols, and defines each figure.

    \b
    Examples:
      pipeline evaluate
      pipeline evaluate coco.h5 --protocol coco-1k --out data/evaluations/coco/coco-1k
      pipeline evaluate coco.h5 --relevance eccv_image_to_caption.json --out data/judged
      pipeline evaluate data/localizations/entities/NAME.h5 --protocol entities --out data/regions
    """
    if leaks_images is not None and leaks is None:
        raise WrongUsage("--leaks-images needs --leaks, which has the features")
    if protocol == "entities":
        for option, given in (("--leaks", leaks), ("--relevance", relevance)):
            if given:
                raise WrongUsage(
                    f"{option} goes with embedding files, not with --protocol entities"
                )
        _evaluate_localized(embeddings, out, nms, as_json)
        return
    if nms is not None:
        raise WrongUsage("--nms needs --protocol entities")
    # Here, so that --help needs neither numpy nor h5py.
    from pipeline.retrieval.evaluate import MAX_PAIRS
    from pipeline.retrieval.evaluate import evaluate as evaluate_file
    from pipeline.retrieval.tables import markdown_table

    if (embeddings is None) != (out is None):
        raise WrongUsage(
            "pass both EMBEDDINGS.h5 and --out, the folder of its table; without them, all "
            "experiments of params.yaml are evaluated"
        )
    named = {embeddings.stem: (embeddings, out)} if embeddings and out else _all_of_params()
    tables, judged = {}, {}
    for name, (file, folder) in named.items():
        evaluation = evaluate_file(
            file,
            folder,
            split=split,
            protocol=protocol,
            captions_per_image=captions_per_image or None,
            dim=dim,
            relevance=relevance,
            device=device,
            max_pairs=max_pairs or MAX_PAIRS,
            monitor=CONSOLE,
        )
        tables[name], judged[name] = evaluation.table, evaluation.relevance
    if leaks is not None:
        from pipeline.studies.near_duplicates.leaks import find_leaks

        for file, _ in named.values():
            ranked = _ranked_images(file, split)
            find_leaks(ranked, leaks, images=leaks_images, monitor=CONSOLE)
    if as_json:
        found = {"tables": tables} | ({"relevance": judged} if relevance else {})
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(markdown_table(tables), nl=False)
    if relevance:
        from pipeline.studies.relevance.evaluate_relevance import relevance_markdown

        click.echo("\n" + relevance_markdown(judged), nl=False)
    if protocol in OF_CLIPS:
        from pipeline.web.report.published import beside_published

        click.echo("\n" + beside_published(protocol, tables), nl=False)


def _ranked_images(file: Path, split: str | None) -> Sequence[str]:
    from pipeline.retrieval.embedding_file import read_embeddings
    from pipeline.retrieval.ranking.splits import of_split

    return of_split(read_embeddings(file), split).image_ids


def _evaluate_localized(
    file: Path | None, out: Path | None, nms: float | None, as_json: bool
) -> None:
    """Evaluate a localization file; print its tables, followed by those of the papers."""
    from pipeline.regions.localization.evaluate_localization import evaluate_localized, markdown
    from pipeline.regions.localization.measures import NMS
    from pipeline.web.report.published import localized_rows

    if file is None or out is None:
        raise WrongUsage("--protocol entities requires a file of `pipeline localize` and --out DIR")
    nms = NMS if nms is None else nms
    table = evaluate_localized(file, out, nms=nms, monitor=CONSOLE)
    if as_json:
        click.echo(json.dumps({"tables": {file.stem: table}}, indent=2))
    else:
        click.echo(markdown(table, localized_rows()), nl=False)


def _all_of_params() -> dict[str, tuple[Path, Path]]:
    """Return the embedding file and the table's folder of each experiment and ensemble."""
    from stages.params import load_params

    params = load_params()
    if not params.dataset:
        raise WrongUsage(
            "pass EMBEDDINGS.h5 and --out DIR; without them all experiments of params.yaml are "
            f"evaluated, and {Path.cwd()} has none"
        )
    layout = layout_of(None, params.dataset)
    files = {name: layout.embeddings(name) for name in params.experiments}
    files |= {name: layout.ensemble(name) for name in params.ensembles}
    for name, file in files.items():
        require_made(file, name, layout)
    return {name: (file, layout.evaluation(name)) for name, file in files.items()}
