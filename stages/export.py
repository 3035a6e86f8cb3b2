"""`pipeline export`: an experiment as programs for torch or onnxruntime."""

from pathlib import Path

import click

from stages.command import Command, flag, option
from stages.console import CONSOLE, OUTPUT, elapsed, log_done
from stages.experiment import DATASET, project_of, require_made
from stages.experiment_name import EXPERIMENT


@click.command(cls=Command)
@click.argument("experiment", type=EXPERIMENT)
@option("--to", "Format: of torch.export, or ONNX.", click.Choice(["torch", "onnx"]), required=True)
@option("--out", "Folder of the programs; earlier ones are replaced.", OUTPUT, required=True)
@DATASET
@option("--weights", "Weights of the image network.  [default: as recorded in the head]")
@flag("--without-photo", "Write only image and caption, without the image network.")
def export(
    experiment: str,
    to: str,
    out: Path,
    dataset: Path | None,
    weights: str | None,
    without_photo: bool,
) -> None:
    """Export an experiment as programs that run without this package.

    The programs image and caption map features to embeddings, and photo maps pixels to embeddings;
    export.json describes them. Each is run and compared with the embedding file of the experiment,
    which `pipeline run` computes.

    \b
    Examples:
      pipeline export qian2018-baseline --to onnx --out programs
      pipeline export vsepp --to torch --out programs --dataset data/flickr8k
    """
    from pipeline.experiments.export_model import export_model
    from pipeline.experiments.layout import unseeded
    from stages.plan import experiment_of

    params, layout = project_of(dataset)
    planned = experiment_of(params, unseeded(experiment))
    require_made(layout.embeddings(experiment), experiment, layout)
    differences = export_model(
        experiment,
        layout.dataset,
        out,
        to=to,
        experiments={planned.name: planned},
        root=layout.root,
        weights=weights,
        without_photo=without_photo,
        monitor=CONSOLE,
    )
    log_done(
        f"{out}: {', '.join(differences)}, which differ from the embedding file by at most "
        f"{max(differences.values()):.1e}, {elapsed():.1f} s"
    )
