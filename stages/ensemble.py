"""`pipeline ensemble`: the embeddings of several experiments become those of one."""

from pathlib import Path

import click

from stages.console import OUTPUT, log_done, log_settings
from stages.experiment import layout_of


@click.command()
@click.option("--name", required=True, help="Name of an ensemble in params.yaml.")
@click.option("--dataset", type=click.Path(path_type=Path), help="[default: that of params.yaml]")
@click.option(
    "--embeddings",
    type=click.Path(path_type=Path),
    help="Folder of the members' embedding files.  [default: data/embeddings/DATASET]",
)
@click.option(
    "--out", type=OUTPUT, help="Embedding file.  [default: data/ensembles/DATASET/NAME.h5]"
)
def ensemble(name: str, dataset: Path | None, embeddings: Path | None, out: Path | None) -> None:
    """Average the similarities of several trained experiments.

    The members' embeddings, at norm 1, are put side by side; the dot product of such rows is the
    mean of the members' cosines.

    \b
    Example:
      pipeline ensemble --name ours
    """
    # Here, as the job below: what they import takes longer than --help should.
    from pipeline.retrieval.ensemble import ensemble as average
    from pipeline.retrieval.ensemble import members_of
    from stages.params import load_params

    params = load_params()
    weights = members_of(name, params.ensemble(name))
    layout = layout_of(dataset, params.dataset)
    files = {member: layout.embeddings(member) for member in weights}
    if embeddings is not None:
        files = {member: embeddings / file.name for member, file in files.items()}
    out = out or layout.ensemble(name)
    log_settings("ensemble", name=name, members=",".join(weights), dataset=layout.dataset, out=out)
    joined = average(files, out, name=name, weights=weights)
    log_done(
        f"{out}: {len(joined.image_ids)} images and {len(joined.caption_ids)} captions in "
        f"{joined.image_embeddings.shape[1]} dimensions, the mean of {len(weights)} cosines"
    )
