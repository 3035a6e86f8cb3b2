"""`pipeline score`: captions against those that people wrote, and of drawn scenes against these."""

from pathlib import Path

import click

from pipeline.errors import WrongUsage
from stages.console import CONSOLE, OUTPUT, log_settings
from stages.experiment import layout_of


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help="Whose images are described.  [default: that of params.yaml]",
)
@click.option(
    "--out",
    type=OUTPUT,
    help="Each file's scores go to a folder of its name there.  "
    "[default: data/caption-scores/DATASET]",
)
@click.option(
    "--ranked-by",
    metavar="EXPERIMENT",
    help="A retrieval experiment whose head ranks the images by each caption.",
)
def score(
    files: tuple[Path, ...], dataset: Path | None, out: Path | None, ranked_by: str | None
) -> None:
    """Score files of captions: BLEU, ROUGE-L, CIDEr, words, copies, and on drawn scenes truth.

    Files are those of `pipeline caption` or anybody's in COCO's format of results; without a FILE,
    all in data/captions/DATASET. docs/sentences.md defines each figure.

    \b
    Examples:
      pipeline score --dataset data/flickr8k
      pipeline score results.json --dataset data/coco --ranked-by kiros2014-linear
    """
    # Here: these take longer to import than --help should.
    from pipeline.datasets.manifest import read_manifest
    from pipeline.experiments.known_truth import caption_truth_of
    from pipeline.language.score_captions import evaluate_captions, markdown
    from stages.params import load_params

    params = load_params()
    layout = layout_of(dataset, params.dataset)
    found = list(files) or sorted(layout.captions("x").parent.glob("*.jsonl"))
    if not found:
        raise WrongUsage(
            f"{layout.captions('x').parent} holds no captions; make some with `pipeline caption`, "
            "or name a FILE"
        )
    if repeated := {f.stem for f in found if [g.stem for g in found].count(f.stem) > 1}:
        raise WrongUsage(f"several files are called {', '.join(sorted(repeated))}; rename one")
    log_settings("score", dataset=layout.dataset, out=out, files=len(found), ranked_by=ranked_by)
    truth, head = caption_truth_of(read_manifest(layout.dataset)), None
    if ranked_by is not None:
        from pipeline.experiments.captioners import open_ranking_head
        from stages.plan import experiment_of

        head = open_ranking_head(experiment_of(params, ranked_by), layout)
    rows = {}
    for file in found:
        folder = out / file.stem if out is not None else layout.caption_scores(file.stem)
        rows[file.stem] = evaluate_captions(
            file, layout.dataset, folder, truth=truth, ranked_by=head, monitor=CONSOLE
        )
    click.echo(markdown(rows, truth), nl=False)
