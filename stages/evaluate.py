"""`pipeline evaluate`: tables of embedding files and localization files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.heads.training.training_options import TrainingOptions
from pipeline.retrieval.ranking.protocols import PROTOCOLS
from pipeline.store.errors import WrongUsage
from stages.additions import added_options, additions_to
from stages.command import COUNT, FEATURES, Command, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import ROOT, layout_of, require_made
from stages.options import JSON, option_of

if TYPE_CHECKING:
    from pipeline.retrieval.evaluate import Evaluation


@click.command(cls=Command)
@click.argument("embeddings", type=FEATURES, metavar="[EMBEDDINGS.h5]", required=False)
@option("--out", "Output folder.  [default: the table is only printed]", OUTPUT)
@ROOT
@option("--split", "Split to rank in a file of several splits, or all.  [default: the only one]")
@option(
    "--protocol",
    f"{', '.join(PROTOCOLS)} or first-N: checks the counts of the file, and adds mean inverted "
    "rank, chance levels and 95 % intervals, the latter two always below 1,000 images; entities: "
    "for a file of `pipeline localize`.  [default: all, without additions]",
    metavar="NAME",
)
@option(
    "--captions-per-image",
    "Use the first N captions of each image; 0 uses all.  msvd uses all, and trecvid-vtt one "
    "in each of its two sets.",
    click.IntRange(0),
    default=5,
)
@option(
    "--dim",
    "Rank with the first N dimensions of the vectors, scaled to length 1.  [default: all]",
    COUNT,
    metavar="N",
)
@added_options("EVALUATE")
@option(
    "--max-pairs",
    "Maximum number of image-caption pairs; more are an error.  [default: 2e11]",
    COUNT,
)
@option_of(TrainingOptions, "device")
@JSON
@click.pass_context
def evaluate(
    ctx: click.Context,
    embeddings: Path | None,
    out: Path | None,
    split: str | None,
    protocol: str | None,
    captions_per_image: int,
    dim: int | None,
    max_pairs: int | None,
    device: str,
    as_json: bool,
    **options_of_additions: Any,
) -> None:
    """Compute Recall@K of an embedding file both ways; --out writes recall.json and recall.csv.

    Without a file, evaluates all experiments and ensembles of params.yaml, with output below data/.
    docs/evaluation.md describes the file and the protocols, and defines each metric.

    \b
    Examples:
      pipeline evaluate
      pipeline evaluate coco.h5
      pipeline evaluate coco.h5 --protocol coco-1k --out data/evaluations/coco/coco-1k
      pipeline evaluate coco.h5 --relevance eccv_image_to_caption.json --out data/judged
      pipeline evaluate data/localizations/entities/NAME.h5 --protocol entities --out data/regions
    """
    additions = additions_to("EVALUATE")
    if any(addition.instead(ctx.params) for addition in additions):
        return
    from pipeline.retrieval.evaluate import MAX_PAIRS
    from pipeline.retrieval.evaluate import evaluate as evaluate_file
    from pipeline.retrieval.tables import markdown_table

    if embeddings is None and out is not None:
        raise WrongUsage(
            "--out needs EMBEDDINGS.h5; without both, all experiments of params.yaml are evaluated"
        )
    files = _all_of_params() if embeddings is None else {embeddings.stem: (embeddings, out)}
    judges = [judge for addition in additions if (judge := addition.judge(ctx.params)) is not None]
    evaluations: dict[str, Evaluation] = {}
    for name, (file, folder) in files.items():
        evaluations[name] = evaluate_file(
            file,
            folder,
            split=split,
            protocol=protocol,
            captions_per_image=captions_per_image or None,
            dim=dim,
            relevance=judges[0] if judges else None,
            device=device,
            max_pairs=max_pairs or MAX_PAIRS,
            monitor=CONSOLE,
        )
    for addition in additions:
        addition.log(ctx.params, [file for file, _ in files.values()])
    tables = {name: evaluation.table for name, evaluation in evaluations.items()}
    if as_json:
        result: dict[str, Any] = {"tables": tables}
        if judges:
            result["relevance"] = {name: e.relevance for name, e in evaluations.items()}
        click.echo(json.dumps(result, indent=2))
        return
    click.echo(markdown_table(tables), nl=False)
    for addition in additions:
        if text := addition.text(ctx.params, evaluations):
            click.echo("\n" + text, nl=False)


def _all_of_params() -> dict[str, tuple[Path, Path | None]]:
    """Return the embedding file and the table's folder of each experiment and ensemble."""
    from stages.params import load_params

    params = load_params()
    if not params.dataset:
        raise WrongUsage(
            "pass EMBEDDINGS.h5; without a file all experiments of params.yaml are evaluated, and "
            f"{Path.cwd()} has none"
        )
    layout = layout_of(None, params.dataset)
    files = {name: layout.embeddings(name) for name in params.experiments}
    files |= {name: layout.ensemble(name) for name in params.ensembles}
    for name, file in files.items():
        require_made(file, name, layout)
    return {name: (file, layout.evaluation(name)) for name, file in files.items()}
