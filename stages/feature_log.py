"""Final log lines of a command that computes a feature set; imported only then."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from pipeline.store.objects.urls import shown
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.wording import counted
from stages.console import SOME_ROWS_FAILED, elapsed, log_done

_REASONS_SHOWN = 5


def log_made(ctx: click.Context, out: Path, index: FeatureIndex, as_json: bool) -> None:
    """Log the computed feature set, print it as JSON, and exit with status 3 if rows failed."""
    log_all_made(ctx, {out: index}, as_json)


def log_all_made(ctx: click.Context, made: Mapping[Path, FeatureIndex], as_json: bool) -> None:
    """As `log_made`, for the sets of several folders: their JSON is a list."""
    for out, index in made.items():
        log_done(
            f"{counted(index.rows, 'row')} {index.header.row_shape} in "
            f"{counted(len(index.shards), 'shard')} in {shown(out)}, "
            f"recipe {index.header.recipe_hash}, {elapsed():.1f} s"
        )
    if as_json:
        facts = [_facts(out, index) for out, index in made.items()]
        click.echo(json.dumps(facts if len(facts) > 1 else facts[0], indent=2))
    failed = {out: index for out, index in made.items() if index.failed_rows}
    for out, index in failed.items():
        for row_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {row_id}: {status}: {reason}")
        rows = counted(index.rows, "row")
        log_done(f"{index.failed_rows} of {rows} failed; they keep their rows, as NaN")
    if failed:
        ctx.exit(SOME_ROWS_FAILED)


def _facts(out: Path, index: FeatureIndex) -> dict[str, object]:
    header = index.header
    return {
        "out": shown(out), "dataset": header.dataset, "rows": index.rows,
        "failed_rows": index.failed_rows, "row_shape": header.row_shape, "dtype": header.dtype,
        "shards": len(index.shards), "recipe": header.recipe.get("name"),
        "recipe_hash": header.recipe_hash, "weights": header.weights,
    }  # fmt: skip
