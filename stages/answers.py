"""Answers to queries as lines of text, for `pipeline search` and what families add to it."""

from collections.abc import Sequence
from typing import Any

import click

from stages.console import printable


def print_answers(answers: Sequence[dict[str, Any]]) -> None:
    """Print one line per hit; with several queries, each query before its hits."""
    for answer in answers:
        if len(answers) > 1:
            click.echo(printable(answer["query"]["sentence"]))
        for result in answer["results"]:
            rank, score, *rest = result.values()
            click.echo("\t".join((str(rank), f"{score:.6g}", *map(printable, rest))))
