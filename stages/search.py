"""`pipeline search`: sentences, a picture, or a picture less and plus words find their nearest."""

import json
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from pipeline.canonical import sha256_of_file
from pipeline.datasets.manifest import MANIFEST_FILE, read_manifest
from pipeline.queries import embed_pictures, embed_sentences, head_of, read_sentences
from pipeline.retrieval.approximate import open_index
from pipeline.retrieval.composition import compose, listed, require_composable
from pipeline.retrieval.embeddings import Embeddings, read_embeddings
from pipeline.retrieval.search import Gallery, SearchError, SideName, nearest
from stages.console import log_done, log_settings, printable
from stages.experiment import inputs_of
from stages.params import DATA, load_params

_PATH = click.Path(path_type=Path)
_SIDES: dict[str, SideName] = {"images": "images", "sentences": "captions"}


@click.command()
@click.argument("sentence", required=False)
@click.option("--experiment", required=True, help="Name of an experiment in params.yaml.")
@click.option(
    "--image", metavar="FILE_OR_ID", help="Ask with a picture: an id of the embeddings, or a file."
)
@click.option("--minus", multiple=True, metavar="WORD", help="Picture less this word; repeatable.")
@click.option("--plus", multiple=True, metavar="WORD", help="Picture plus this word; repeatable.")
@click.option("--queries", type=_PATH, help="File of sentences to ask with, one a line.")
@click.option(
    "--of",
    type=click.Choice(list(_SIDES)),
    help="What is looked for.  [default: images; for a picture without words, sentences]",
)
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option(
    "--around-mean",
    type=click.IntRange(1),
    metavar="N",
    help="Re-sort the N nearest by their distance to their mean before the first are shown.",
)
@click.option("--json", "as_json", is_flag=True, help="Results as JSON.")
@click.option(
    "--approximate",
    is_flag=True,
    help="Compare only with what an index points to, for millions of rows. It is made if need be.",
)
@click.option(
    "--embeddings", type=_PATH, help="Embedding file.  [default: data/embeddings/EXPERIMENT.h5]"
)
@click.option(
    "--head", type=_PATH, help="Folder of the trained head.  [default: data/heads/EXPERIMENT]"
)
@click.option("--dataset", type=_PATH, help="[default: that of params.yaml]")
@click.option(
    "--encoder",
    type=_PATH,
    help="Folder of the fitted sentence encoder.  [default: data/text/DATASET/NAME.encoder]",
)
@click.option(
    "--weights", help="Of the image network, for files.  [default: as the head's record says]"
)
def search(
    sentence: str | None,
    experiment: str,
    image: str | None,
    minus: tuple[str, ...],
    plus: tuple[str, ...],
    queries: Path | None,
    of: str | None,
    top: int,
    around_mean: int | None,
    as_json: bool,
    approximate: bool,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
) -> None:
    """Find the images or sentences of an embedding file that are nearest to a query.

    One result a line: rank, score, id, file and first caption; of sentences rank, score, id and
    text. A greater score is nearer; ties stand in the order of the ids.

    \b
    Examples:
      pipeline search "a dog running on the grass" --experiment NAME --top 5
      pipeline search --image photo.jpg --experiment NAME
      pipeline search --image photo.jpg --minus blue --plus red --experiment NAME
    """
    if sum(given is not None for given in (sentence, queries, image)) != 1:
        raise click.UsageError("give a SENTENCE, --queries FILE or --image, one of them")
    if image is None and (minus or plus):
        raise click.UsageError("--minus and --plus go with --image")
    if around_mean is not None and around_mean < top:
        raise click.UsageError(f"--around-mean {around_mean} is fewer than --top {top}; take more")
    words = [*minus, *plus]
    of = of or ("images" if image is None or words else "sentences")
    params = load_params()
    plan = params.experiment(experiment)
    dataset, _, captions = inputs_of(plan, params, dataset, None, None)
    embeddings = embeddings or DATA / "embeddings" / f"{experiment}.h5"
    head = head or DATA / "heads" / experiment
    encoder = encoder or captions.with_name(f"{captions.name}.encoder")
    log_settings(
        "search", experiment=experiment, embeddings=embeddings, head=head, dataset=dataset,
        encoder=encoder, of=of, top=top, around_mean=around_mean,
        search="approximate" if approximate else "exact",
    )  # fmt: skip
    texts = read_sentences(queries) if queries is not None else [sentence or ""]
    space = _read(embeddings, experiment)
    gallery = Gallery.of(space, _SIDES[of])
    if words or around_mean:
        require_composable(space.similarity)
    known = _known(dataset, space, gallery)
    # The stored embedding of an id needs no head.
    trained = cache(partial(head_of, space, embeddings, head))
    if image is None:
        asked: list[dict[str, Any]] = [{"sentence": text} for text in texts]
        asking, rows = _SIDES["sentences"], embed_sentences(trained(), encoder, texts, log_done)
    else:
        asked = [{"image": image, "minus": list(minus), "plus": list(plus)}]
        asking = _SIDES["images"]
        if image in space.image_ids:
            rows = space.image_embeddings[[space.image_ids.index(image)]]
        elif Path(image).is_file():
            rows = embed_pictures(trained(), [Path(image)], weights)
        else:
            raise SearchError(
                f"{image!r} is neither the id of an image in {embeddings} nor a file; give one of "
                f"them (ids there look like {space.image_ids[0]!r})"
            )
        if words:
            vectors = embed_sentences(trained(), encoder, words, log_done)
            rows = compose(rows[0], vectors[: len(minus)], vectors[len(minus) :])[None]
    own = image if of == "images" and image in gallery.ids else None
    number = max(top, around_mean or 0) + (own is not None)
    started = time.monotonic()
    if approximate:
        hits = open_index(embeddings, space, gallery.side, log_done).nearest(rows, asking, number)
    else:
        hits = nearest(gallery, rows, asking, number)
    seconds = time.monotonic() - started
    answers = [
        {
            "query": query,
            "results": [
                {"rank": rank, "score": score, "id": one, **known[one]}
                for rank, (one, score) in enumerate(best[:top], 1)
            ],
        }
        for query, best in zip(asked, listed(hits, gallery, own, around_mean), strict=True)
    ]
    if as_json:
        facts = {"experiment": experiment, "similarity": space.similarity, "of": of}
        click.echo(json.dumps({**facts, "answers": answers}, indent=2))
    else:
        _print(answers)
    if own is not None:
        log_done(f"{own} itself is left out of its results")
    log_done(
        f"queries: {len(rows)}, among {len(gallery.ids)} {of} by {space.similarity}: "
        f"{seconds:.2f} s"
    )


def _read(path: Path, experiment: str) -> Embeddings:
    if not path.is_file():
        raise SearchError(
            f"{path} is not there, so {experiment!r} has no embeddings to search yet; make them "
            f"with `pipeline embed --experiment {experiment}`, or name a file with --embeddings"
        )
    return read_embeddings(path)


def _known(dataset: Path, space: Embeddings, gallery: Gallery) -> dict[str, dict[str, str]]:
    """Return what is said of each result beside its id, by the id."""
    manifest = read_manifest(dataset)
    known: dict[str, dict[str, str]] = {}
    for entry in manifest.entries:
        if gallery.side == "images":
            file = str(manifest.image_root / entry.file)
            known[entry.id] = {"file": file, "caption": next(iter(entry.captions), "")}
        else:
            for one, text in zip(entry.caption_ids, entry.captions, strict=True):
                known[one] = {"sentence": text, "image": entry.id}
    if strangers := [one for one in gallery.ids if one not in known]:
        raise SearchError(
            f"{len(strangers)} of the {len(gallery.ids)} {gallery.side} of the embedding file are "
            f"not in {dataset / MANIFEST_FILE}, first {strangers[:5]}; give the dataset that was "
            f"embedded ({space.provenance.get('dataset', 'its name is not recorded')}) with "
            "--dataset"
        )
    made_from = space.provenance.get("manifest_sha256")
    if made_from not in (None, sha256_of_file(dataset / MANIFEST_FILE)):
        log_done(f"{dataset} has changed since it was embedded; its captions may have, too")
    return known


def _print(answers: Sequence[dict[str, Any]]) -> None:
    """Write a line for each result, and where there are several queries one before each."""
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(printable, rest))))
