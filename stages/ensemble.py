"""`pipeline ensemble`: the embeddings of several experiments become those of one."""

from pathlib import Path

import click

from pipeline.hashing import sha256_of_file
from pipeline.retrieval.embeddings import read_embeddings, write_embeddings
from pipeline.retrieval.ensemble import average
from stages.console import OUTPUT, log_done, log_settings
from stages.params import DATA, load_params


@click.command()
@click.option("--name", required=True, help="Name of an ensemble in params.yaml.")
@click.option(
    "--embeddings",
    type=click.Path(path_type=Path),
    default=DATA / "embeddings",
    show_default=True,
    help="Folder of the members' embedding files.",
)
@click.option("--out", type=OUTPUT, help="Embedding file.  [default: EMBEDDINGS/NAME.h5]")
def ensemble(name: str, embeddings: Path, out: Path | None) -> None:
    """Average the similarities of several trained experiments.

    The members' embeddings, at norm 1, are put side by side; the dot product of such rows is the
    mean of the members' cosines.

    \b
    Example:
      pipeline ensemble --name ours
    """
    members = load_params().ensemble(name)
    out = out or embeddings / f"{name}.h5"
    log_settings("ensemble", name=name, members=",".join(members), out=out)
    paths = {member: embeddings / f"{member}.h5" for member in members}
    joined = average([read_embeddings(path) for path in paths.values()], list(members.values()))
    joined.provenance["experiment"] = name
    joined.provenance["members"] = {
        member: {"embeddings_sha256": sha256_of_file(path)} for member, path in paths.items()
    }
    write_embeddings(out, joined)
    log_done(
        f"{out}: {len(joined.image_ids)} images and {len(joined.caption_ids)} captions in "
        f"{joined.image_embeddings.shape[1]} dimensions, the mean of {len(members)} cosines"
    )
