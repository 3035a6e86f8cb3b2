"""`pipeline search --regularities`: queries with an image minus one word plus another."""

import json
from typing import Any

import click

from stages.command import flag
from stages.console import CONSOLE
from stages.experiment import layout_of
from stages.searching import sources_of, tested_embeddings


class SearchRegularities:
    """Addition of regularities to `pipeline search`."""

    OPTIONS = (
        flag(
            "--regularities",
            "Query with each image minus one word plus another, such as two colours, and "
            "print the share of correct results.",
        ),
    )

    @staticmethod
    def instead(params: dict[str, Any], files: dict[str, Any]) -> bool:
        """Print a table of the regularities of a space, and write it below data/regularities."""
        if not params["regularities"]:
            return False
        unused = ("sentence", "queries", "image", "minus", "plus", "of", "approximate", "where")
        if any(params[name] for name in unused) or params.get("localize"):
            raise click.UsageError("--regularities accepts only --around-mean and --json")
        from pipeline.datasets.image_truth import truth_of
        from pipeline.retrieval.query.searcher import Searcher
        from pipeline.studies.regularities import markdown, regularities, write_regularities

        experiment, as_json = params["experiment"], params["as_json"]
        # Of the test split, as tables are.
        embeddings = files["embeddings"] or tested_embeddings(experiment, files["dataset"])
        sources = sources_of(experiment, **{**files, "embeddings": embeddings})
        out = layout_of(sources["dataset"], "").regularities(experiment)
        searcher = Searcher(**sources, monitor=CONSOLE)
        words = truth_of(searcher.embedded.manifest)
        result = regularities(searcher, CONSOLE.log, words, around_mean=params["around_mean"])
        write_regularities(out, result)
        click.echo(json.dumps(result.kinds, indent=2) if as_json else markdown(result), nl=as_json)
        return True
