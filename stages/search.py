"""`pipeline search`: items nearest to sentences, or to an image minus and plus words."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.retrieval.query.sides import SIDES
from stages.command import Answer
from stages.console import CONSOLE, log_done, printable
from stages.experiment import layout_of
from stages.sources import own_embeddings, region_sources_of, source_options, sources_of

if TYPE_CHECKING:
    from pipeline.retrieval.query.embedded_dataset import Hit


@click.command(cls=Answer)
@click.argument("sentence", required=False)
@source_options
@click.option("--image", metavar="FILE_OR_ID", help="Query image: an id or a file.")
@click.option(
    "--features",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --image, instead of --experiment: search this feature set by the cosine of "
    "features; needs neither dataset nor training.",
)
@click.option(
    "--minus", multiple=True, metavar="WORD", help="Subtract this word from the image; repeatable."
)
@click.option(
    "--plus", multiple=True, metavar="WORD", help="Add this word to the image; repeatable."
)
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    help="File of sentences to search for, one per line.",
)
@click.option(
    "--of",
    type=click.Choice(list(SIDES)),
    help="Kind of result.  [default: images; sentences for an image without words]",
)
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="How many.")
@click.option(
    "--around-mean",
    type=click.IntRange(1),
    metavar="N",
    help="Sort the N nearest by their distance to their mean, and show the first of these; with "
    "--regularities, also count these.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Find only images that fulfil a condition, such as split=test, 'id~^vacation/' or "
    "year>2019: on id, file, split or a metadata column, with =, !=, ~ (regular expression), <, "
    "<=, > or >=.  Repeatable.",
)
@click.option(
    "--approximate",
    is_flag=True,
    help="Search with an approximate index, for millions of rows. It is built if it is missing.",
)
@click.option(
    "--localize",
    is_flag=True,
    help="Find images by the box nearest to a phrase, in the file of `pipeline localize`.",
)
@click.option(
    "--marked",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --localize: write the images as SVG with the box drawn over each to this folder.",
)
@click.option(
    "--regularities",
    is_flag=True,
    help="Query with each image minus one word plus another, such as two colours, and print the "
    "share of correct results.",
)
@click.option("--json", "as_json", is_flag=True, help="Results as JSON.")
def search(
    sentence: str | None,
    image: str | None,
    features: Path | None,
    minus: tuple[str, ...],
    plus: tuple[str, ...],
    queries: Path | None,
    of: str | None,
    top: int,
    around_mean: int | None,
    where: tuple[str, ...],
    approximate: bool,
    localize: bool,
    marked: Path | None,
    regularities: bool,
    as_json: bool,
    experiment: str | None,
    **files: Any,
) -> None:
    """Find the images or sentences of an embedding file that are nearest to a query.

    All splits are searched, and embedded first if necessary. One result per line: for images
    rank, score, id, file, first caption and split; for sentences rank, score, id, text, image and
    split. A greater score is nearer; ties are sorted by id.

    \b
    Examples:
      pipeline search "a dog running on the grass" --experiment NAME --top 5
      pipeline search --image photo.jpg --experiment NAME
      pipeline search --image photo.jpg --minus blue --plus red --experiment NAME
      pipeline search "a dog" --where split=test --where 'id~^vacation/' --experiment NAME
      pipeline search --image photo.jpg --features features/photos
      pipeline search "the red ball" --localize --marked found --experiment NAME
      pipeline search --regularities --experiment NAME
    """
    if features is not None:
        weights = files.pop("weights")
        others = (sentence, queries, minus, plus, of, around_mean, approximate, localize, where)
        if image is None or any((*others, marked, regularities, experiment, *files.values())):
            raise click.UsageError("--features accepts only --image, --top, --weights and --json")
        _search_features(features, image, top, weights, as_json)
        return
    if experiment is None:
        raise click.UsageError("pass --experiment NAME, or --image with --features DIR")
    if regularities:
        if any((sentence, queries, image, minus, plus, of, approximate, localize, where)):
            raise click.UsageError("--regularities accepts only --around-mean and --json")
        _ask_analogies(around_mean, as_json, experiment, files)
        return
    if localize:
        if sentence is None or any(
            (queries, image, minus, plus, of, around_mean, approximate, where)
        ):
            raise click.UsageError("--localize accepts only a SENTENCE, --top, --marked and --json")
        _search_regions(sentence, top, marked, as_json, experiment, files)
        return
    if marked is not None:
        raise click.UsageError("--marked requires --localize")
    if sum(given is not None for given in (sentence, queries, image)) != 1:
        raise click.UsageError("pass one of SENTENCE, --queries FILE and --image")
    if image is None and (minus or plus):
        raise click.UsageError("--minus and --plus need --image")
    how: Any = {"top": top, "around_mean": around_mean, "approximate": approximate, "where": where}
    sources = sources_of(experiment, **files)
    # Here: these import numpy and h5py.
    from pipeline.retrieval.query.query_sentences import read_sentences
    from pipeline.retrieval.query.searcher import Searcher

    started = time.monotonic()
    sentences = [sentence or ""] if queries is None else read_sentences(queries)
    searcher = Searcher(**sources, monitor=CONSOLE)
    of = of or searcher.default_of(image is not None, bool(minus or plus))
    if image is None:
        asked: list[dict[str, Any]] = [{"sentence": text} for text in sentences]
        found = searcher.by_sentences(sentences, of=of, **how)
    else:
        asked = [{"image": image, "minus": list(minus), "plus": list(plus)}]
        found = [searcher.by_image(image, minus=minus, plus=plus, of=of, **how)]
    answers = [
        {"query": query, "results": [_result(hit, of) for hit in hits]}
        for query, hits in zip(asked, found, strict=True)
    ]
    if as_json:
        whole = {"experiment": experiment, "similarity": searcher.similarity, "of": of}
        click.echo(json.dumps({**whole, "answers": answers}, indent=2))
    else:
        _print(answers)
    searched, seconds = searcher.ids(of, where), time.monotonic() - started
    if image in searched:
        log_done(f"{image} itself is left out of its results")
    among = f"among {len(searched)} {of}{searcher.embedded.of_splits}"
    among += f" where {' and '.join(where)}" if where else ""
    log_done(f"queries: {len(asked)}, {among} by {searcher.similarity}: {seconds:.2f} s")


def _search_features(
    features: Path, image: str, top: int, weights: str | None, as_json: bool
) -> None:
    """Print one line per image with similar features: rank, score and id."""
    from pipeline.retrieval.query.similar_images import FeatureSearcher

    started = time.monotonic()
    searcher = FeatureSearcher(features, weights=weights)
    hits = searcher.by_image(image, top=top)
    results = [{"rank": hit.rank, "score": hit.score, "id": hit.id} for hit in hits]
    answers = [{"query": {"image": image}, "results": results}]
    if as_json:
        whole = {"features": str(features), "similarity": "cosine", "of": "images"}
        click.echo(json.dumps({**whole, "answers": answers}, indent=2))
    else:
        _print(answers)
    searched, failed = len(searcher.searched), len(searcher.features) - len(searcher.searched)
    left_out = f"; {failed} rows without features are left out" if failed else ""
    seconds = time.monotonic() - started
    log_done(f"among {searched} rows by cosine{left_out}: {seconds:.2f} s")


def _ask_analogies(
    around_mean: int | None, as_json: bool, experiment: str, files: dict[str, Any]
) -> None:
    """Print a table of the regularities of a space, and write them below data/regularities."""
    from pipeline.experiments.known_truth import image_words_of
    from pipeline.retrieval.query.searcher import Searcher
    from pipeline.studies.regularities import markdown, regularities, write_regularities

    # Of the test split, as tables are.
    own = files["embeddings"] or own_embeddings(experiment, files["dataset"])
    sources = sources_of(experiment, **{**files, "embeddings": own})
    out = layout_of(sources["dataset"], "").regularities(experiment)
    searcher = Searcher(**sources, monitor=CONSOLE)
    words = image_words_of(searcher.embedded.manifest)
    found = regularities(searcher, CONSOLE.log, words, around_mean=around_mean)
    write_regularities(out, found)
    click.echo(json.dumps(found.kinds, indent=2) if as_json else markdown(found), nl=as_json)


def _search_regions(
    phrase: str,
    top: int,
    marked: Path | None,
    as_json: bool,
    experiment: str,
    files: dict[str, Any],
) -> None:
    """Print one line per image: rank, score, id, file, box and first caption."""
    sources = region_sources_of(experiment, **files)
    from pipeline.regions.localization.region_searcher import RegionSearcher

    started = time.monotonic()
    searcher = RegionSearcher(**sources, monitor=CONSOLE)
    (hits,) = searcher.by_phrases([phrase], top=top)
    results = [
        {
            "rank": hit.rank,
            "score": hit.score,
            "id": hit.id,
            "file": str(hit.file),
            "box": list(hit.box),
            "caption": hit.caption,
        }
        for hit in hits
    ]
    if as_json:
        found = {"experiment": experiment, "similarity": searcher.found.similarity}
        answers = [{"query": {"phrase": phrase}, "results": results}]
        click.echo(json.dumps({**found, "answers": answers}, indent=2))
    else:
        texts = [{**r, "box": " ".join(f"{v:g}" for v in hit.box)} for r, hit in zip(
            results, hits, strict=True)]  # fmt: skip
        _print([{"query": {"sentence": phrase}, "results": texts}])
    if marked is not None:
        from pipeline.web.marked_hits import write_marked

        write_marked(marked, phrase, hits)
    boxes = len(searcher.found.boxes)
    seconds = time.monotonic() - started
    log_done(f"among {boxes} boxes of {len(searcher.found.image_ids)} images: {seconds:.2f} s")


def _result(hit: "Hit", of: str) -> dict[str, Any]:
    found = {"rank": hit.rank, "score": hit.score, "id": hit.id}
    if of == "images":
        return {**found, "file": str(hit.file), "caption": hit.caption, "split": hit.split}
    return {**found, "sentence": hit.caption, "image": hit.image, "split": hit.split}


def _print(answers: Sequence[dict[str, Any]]) -> None:
    """Print one line per hit; with several queries, each query before its hits."""
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(printable, rest))))
