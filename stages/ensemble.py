"""`pipeline ensemble`: combines the embeddings of several experiments in one file."""

from pathlib import Path

import click

from pipeline.store.errors import WrongUsage
from pipeline.store.wording import counted
from stages.command import PATH, Command, option
from stages.console import OUTPUT, log_chosen, log_done
from stages.experiment import DATASET, project_of


@click.command(cls=Command)
@option("--name", "Name of the ensemble.  [default: every ensemble of params.yaml]")
@DATASET
@option(
    "--embeddings",
    "Folder of the members' embedding files.  [default: data/embeddings/DATASET]",
    PATH,
)
@option("--out", "Embedding file.  [default: data/ensembles/DATASET/NAME.h5]", OUTPUT)
def ensemble(
    name: str | None, dataset: Path | None, embeddings: Path | None, out: Path | None
) -> None:
    """Average the similarities of several trained experiments.

    The L2-normalised embeddings of the members are concatenated, so that the dot product of two
    rows is the mean of the members' cosines.

    \b
    Examples:
      pipeline ensemble --name ours
      pipeline ensemble
    """
    from pipeline.retrieval.ensemble import ensemble as average
    from pipeline.retrieval.ensemble import members_in, members_of

    params, layout = project_of(dataset)
    if name is None and out is not None:
        raise WrongUsage("--out applies to one ensemble, but none is named; pass --name NAME")
    for each in [name] if name else params.ensembles:
        base = each.partition("@")[0]
        weights = members_in({base: members_of(base, params.ensemble(base))}, each)
        files = {member: layout.embeddings(member) for member in weights}
        if embeddings is not None:
            files = {member: embeddings / file.name for member, file in files.items()}
        to_file = out or layout.ensemble(each)
        log_chosen(name=each, members=",".join(weights))
        joined = average(files, to_file, name=each, weights=weights)
        log_done(
            f"{to_file}: {counted(len(joined.image_ids), 'image')} and "
            f"{counted(len(joined.caption_ids), 'caption')} in {joined.image_embeddings.shape[1]} "
            f"dimensions, the mean of {counted(len(weights), 'cosine')}"
        )
