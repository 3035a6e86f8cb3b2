"""`pipeline search`: items nearest to sentences, or to an image minus and plus words."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.retrieval.query import SIDES
from pipeline.store.objects.urls import shown
from stages.additions import added_options, additions_to
from stages.command import COUNT, FEATURES, PATH, Answer, flag, option
from stages.console import CONSOLE, elapsed, log_done
from stages.searching import SOURCES, print_answers, source_options, sources_of

if TYPE_CHECKING:
    from pipeline.retrieval.query.embedded_dataset import Hit


@click.command(cls=Answer)
@click.argument("sentence", required=False)
@source_options
@option("--image", "Query image: an id or a file.", metavar="FILE_OR_ID")
@option(
    "--features",
    "With --image, instead of --experiment: search this feature set by the cosine of "
    "features; needs neither dataset nor training.",
    FEATURES,
    metavar="DIR",
)
@option("--minus", "Subtract this word from the image; repeatable.", multiple=True, metavar="WORD")
@option("--plus", "Add this word to the image; repeatable.", multiple=True, metavar="WORD")
@option("--queries", "File of sentences to search for, one per line.", PATH)
@option(
    "--of",
    "Kind of result.  [default: sentences for --image without --plus and --minus, else images]",
    click.Choice(list(SIDES)),
)
@option("--top", "Number of results per query.", COUNT, default=5)
@option(
    "--around-mean",
    "Re-sort the N nearest results by distance to their mean before the best are shown; with "
    "--regularities, also count the re-sorted hits.",
    COUNT,
    metavar="N",
)
@option(
    "--where",
    "Find only images that fulfil a condition, such as split=test, 'id~^vacation/' or "
    "year>2019: on id, file, split or a metadata column, with =, !=, ~ (regular expression), <, "
    "<=, > or >=.  Repeatable.",
    multiple=True,
    metavar="CONDITION",
)
@flag(
    "--approximate",
    "Search with an approximate index, for millions of rows. It is built if it is missing.",
)
@added_options("SEARCH")
@flag("--json", "Print results as JSON.", name="as_json")
@click.pass_context
def search(
    ctx: click.Context,
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
    as_json: bool,
    experiment: str | None,
    **others: Any,
) -> None:
    """Find the images or sentences of an embedding file that are nearest to a query.

    All splits are searched, and embedded first if necessary. Prints one result per line: for images
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
    files = {name: others.pop(name) for name in SOURCES}
    if features is not None:
        weights = files.pop("weights")
        unused = (sentence, queries, minus, plus, of, around_mean, approximate, where)
        if image is None or any((*unused, *others.values(), experiment, *files.values())):
            raise click.UsageError("--features accepts only --image, --top, --weights and --json")
        _search_features(features, image, top, weights, as_json)
        return
    if experiment is None:
        raise click.UsageError("pass --experiment NAME, or --image with --features DIR")
    if any(addition.instead(ctx.params, files) for addition in additions_to("SEARCH")):
        return
    if sum(given is not None for given in (sentence, queries, image)) != 1:
        raise click.UsageError("pass one of SENTENCE, --queries FILE and --image")
    if image is None and (minus or plus):
        raise click.UsageError("--minus and --plus need --image")
    sources = sources_of(experiment, **files)
    from pipeline.retrieval.query.query_sentences import read_sentences
    from pipeline.retrieval.query.searcher import Searcher

    sentences = [sentence or ""] if queries is None else read_sentences(queries)
    searcher = Searcher(**sources, monitor=CONSOLE)
    of = of or searcher.default_of(image is not None, bool(minus or plus))
    how: Any = {"of": of, "top": top, "around_mean": around_mean, "approximate": approximate,
                "where": where}  # fmt: skip
    if image is None:
        searched_for: list[dict[str, Any]] = [{"sentence": text} for text in sentences]
        hits_by_query = searcher.by_sentences(sentences, **how)
    else:
        searched_for = [{"image": image, "minus": list(minus), "plus": list(plus)}]
        hits_by_query = [searcher.by_image(image, minus=minus, plus=plus, **how)]
    answers = [
        {"query": query, "results": [_result(hit, of) for hit in hits]}
        for query, hits in zip(searched_for, hits_by_query, strict=True)
    ]
    print_answers(answers, as_json, experiment=experiment, similarity=searcher.similarity, of=of)
    searched = searcher.ids(of, where)
    if image in searched:
        log_done(f"{image} itself is left out of its results")
    among = f"among {len(searched)} {of}{searcher.embedded.of_splits}"
    among += f" where {' and '.join(where)}" if where else ""
    log_done(f"queries: {len(answers)}, {among} by {searcher.similarity}: {elapsed():.2f} s")


def _search_features(
    features: Path, image: str, top: int, weights: str | None, as_json: bool
) -> None:
    """Print one line per image with similar features: rank, score and id."""
    from pipeline.retrieval.query.similar_images import FeatureSearcher

    searcher = FeatureSearcher(features, weights=weights)
    hits = searcher.by_image(image, top=top)
    results = [{"rank": hit.rank, "score": hit.score, "id": hit.id} for hit in hits]
    answers = [{"query": {"image": image}, "results": results}]
    print_answers(answers, as_json, features=str(features), similarity="cosine", of="images")
    searched, failed = len(searcher.searched), len(searcher.features) - len(searcher.searched)
    left_out = f"; {failed} rows without features are left out" if failed else ""
    log_done(f"among {searched} rows by cosine{left_out}: {elapsed():.2f} s")


def _result(hit: "Hit", of: str) -> dict[str, Any]:
    if of == "images":
        columns = {"file": shown(hit.file), "caption": hit.caption}
    else:
        columns = {"sentence": hit.caption, "image": hit.image}
    return {"rank": hit.rank, "score": hit.score, "id": hit.id, **columns, "split": hit.split}
