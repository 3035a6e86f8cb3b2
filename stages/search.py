"""`pipeline search`: sentences, a picture, or a picture less and plus words find their nearest."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.retrieval.composition import require_composable
from pipeline.retrieval.search import SearchError
from pipeline.search.query_embedding import read_sentences
from pipeline.search.searcher import SIDES, Hit, Searcher, Sources, default_of
from stages.console import log_done, log_settings, printable
from stages.experiment import layout_of
from stages.params import load_params

Command = TypeVar("Command", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)


def source_options(command: Command) -> Command:
    """Add --experiment, and --embeddings, --head, --dataset, --encoder and --weights."""
    for option in (
        click.option(
            "--weights",
            help="Of the image network, for files.  [default: as the head's record says]",
        ),
        click.option(
            "--encoder",
            type=_PATH,
            help="Folder of the fitted sentence encoder.  "
            "[default: data/text/DATASET/NAME.encoder]",
        ),
        click.option("--dataset", type=_PATH, help="[default: that of params.yaml]"),
        click.option(
            "--head",
            type=_PATH,
            help="Folder of the trained head.  [default: data/heads/DATASET/EXPERIMENT]",
        ),
        click.option(
            "--embeddings",
            type=_PATH,
            help="Embedding file.  [default: data/embeddings/DATASET/EXPERIMENT.h5]",
        ),
        click.option("--experiment", required=True, help="Name of an experiment in params.yaml."),
    ):
        command = option(command)
    return command


def sources_of(
    experiment: str,
    embeddings: Path | None,
    head: Path | None,
    dataset: Path | None,
    encoder: Path | None,
    weights: str | None,
) -> Sources:
    """Return where an experiment's embeddings lie, by its options, params.yaml and the layout.

    Raises
    ------
    ParamsError
    """
    params = load_params()
    captions = params.experiment(experiment).captions
    layout = layout_of(dataset, params.dataset)
    return Sources(
        embeddings or layout.embeddings(experiment),
        head or layout.head(experiment),
        layout.dataset,
        encoder or layout.encoder(captions),
        weights,
    )


def open_searcher(sources: Sources, experiment: str) -> Searcher:
    """Read an experiment's embeddings to search them.

    Raises
    ------
    SearchError
        There are none yet.
    EmbeddingsError
    """
    path = sources.embeddings
    if not path.is_file():
        raise SearchError(
            f"{path} is not there, so {experiment!r} has no embeddings to search yet; make them "
            f"with `pipeline embed --experiment {experiment}`, or name a file with --embeddings"
        )
    return Searcher(sources, log_done)


@click.command()
@click.argument("sentence", required=False)
@source_options
@click.option(
    "--image", metavar="FILE_OR_ID", help="Ask with a picture: an id of the embeddings, or a file."
)
@click.option("--minus", multiple=True, metavar="WORD", help="Picture less this word; repeatable.")
@click.option("--plus", multiple=True, metavar="WORD", help="Picture plus this word; repeatable.")
@click.option("--queries", type=_PATH, help="File of sentences to ask with, one a line.")
@click.option(
    "--of",
    type=click.Choice(list(SIDES)),
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
    of = of or default_of(image is not None, bool(words))
    sources = sources_of(experiment, embeddings, head, dataset, encoder, weights)
    log_settings(
        "search", experiment=experiment, embeddings=sources.embeddings, head=sources.head,
        dataset=sources.dataset, encoder=sources.encoder, of=of, top=top, around_mean=around_mean,
        search="approximate" if approximate else "exact",
    )  # fmt: skip
    texts = read_sentences(queries) if queries is not None else [sentence or ""]
    searcher = open_searcher(sources, experiment)
    space, gallery = searcher.space, searcher.gallery(SIDES[of])
    if words or around_mean:
        require_composable(space.similarity)
    if image is None:
        asked: list[dict[str, Any]] = [{"sentence": text} for text in texts]
        asking, rows = SIDES["sentences"], searcher.of_sentences(texts)
    else:
        asked = [{"image": image, "minus": list(minus), "plus": list(plus)}]
        asking = SIDES["images"]
        if image in space.image_ids:
            rows = searcher.of_stored(image)
        elif Path(image).is_file():
            rows = searcher.of_picture(Path(image))
        else:
            raise SearchError(
                f"{image!r} is neither the id of an image in {sources.embeddings} nor a file; "
                f"give one of them (ids there look like {space.image_ids[0]!r})"
            )
        rows = searcher.composed(rows, minus, plus)
    own = image if of == "images" and image in gallery.ids else None
    started = time.monotonic()
    found = searcher.answers(rows, asking, SIDES[of], top, own, around_mean, approximate)
    seconds = time.monotonic() - started
    files = {e.id: str(searcher.manifest.image_root / e.file) for e in searcher.manifest.entries}
    answers = [
        {"query": query, "results": [_result(k, hit, of, files) for k, hit in enumerate(hits, 1)]}
        for query, hits in zip(asked, found, strict=True)
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


def _result(rank: int, hit: Hit, of: str, files: Mapping[str, str]) -> dict[str, Any]:
    facts = {"rank": rank, "score": hit.score, "id": hit.id}
    if of == "images":
        return {**facts, "file": files[hit.image], "caption": hit.text}
    return {**facts, "sentence": hit.text, "image": hit.image}


def _print(answers: Sequence[dict[str, Any]]) -> None:
    """Write a line for each result, and where there are several queries one before each."""
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(printable, rest))))
