"""`pipeline score`: scores of captions against human references, and against drawn scenes."""

from pathlib import Path

import click

from pipeline.store.errors import WrongUsage
from stages.command import PATH, Answer, option
from stages.console import CONSOLE, OUTPUT
from stages.experiment import DATASET, project_of
from stages.experiment_name import EXPERIMENT


@click.command(cls=Answer)
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE]...")
@DATASET
@option(
    "--out",
    "Output folder; scores of a file are in a subfolder of its name.  [default: "
    "data/caption-scores/DATASET]",
    OUTPUT,
)
@option(
    "--ranked-by",
    "Retrieval experiment whose head ranks the images by each caption.",
    EXPERIMENT,
    metavar="EXPERIMENT",
)
@option(
    "--judgments",
    "JSON lines with image_id, caption and rating: print the rank correlation of each score "
    "with the human ratings instead.",
    click.Path(path_type=Path, dir_okay=False),
    metavar="RATED.jsonl",
)
def score(
    files: tuple[Path, ...],
    dataset: Path | None,
    out: Path | None,
    ranked_by: str | None,
    judgments: Path | None,
) -> None:
    """Score caption files: BLEU, ROUGE-L, CIDEr, words, copies, and correctness on drawn scenes.

    Files are those of `pipeline caption`, or any in COCO's results format; without a FILE, all
    files in data/captions/DATASET. docs/sentences.md defines each metric.

    \b
    Examples:
      pipeline score --dataset data/flickr8k
      pipeline score results.json --dataset data/coco --ranked-by kiros2014-linear
      pipeline score --judgments rated.jsonl --dataset data/flickr8k
    """
    from pipeline.datasets.image_truth import truth_of
    from pipeline.datasets.manifest import read_manifest
    from pipeline.language.captioning.caption_by_name import score as score_files
    from pipeline.language.score_captions import markdown
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    if judgments is not None:
        from pipeline.studies.judgments import correlate
        from pipeline.studies.judgments import markdown as correlations_table

        if files or ranked_by is not None:
            raise WrongUsage("--judgments FILE has captions of its own; omit FILE and --ranked-by")
        folder = layout.caption_scores(judgments.stem) if out is None else out / judgments.stem
        correlations = correlate(judgments, layout.dataset, folder, monitor=CONSOLE)
        click.echo(correlations_table(correlations), nl=False)
        return
    experiments = {ranked_by: experiment_of(params, ranked_by)} if ranked_by is not None else {}
    rows = score_files(
        files or None, layout.dataset, out, ranked_by=ranked_by, experiments=experiments,
        root=layout.root, monitor=CONSOLE,
    )  # fmt: skip
    truth = truth_of(read_manifest(layout.dataset))
    click.echo(markdown(rows, truth), nl=False)
