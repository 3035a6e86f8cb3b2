"""Final log lines of a command that computes a feature set; imported only then."""

import json
from pathlib import Path

import click

from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.index import FeatureIndex
from pipeline.store.wording import counted
from stages.console import SOME_ROWS_FAILED, elapsed, log_done

_REASONS_SHOWN = 5


def log_made(ctx: click.Context, out: Path, index: FeatureIndex, as_json: bool) -> None:
    """Log the computed feature set, print it as JSON, and exit with status 3 if rows failed."""
    header, shards = index.header, len(index.shards)
    log_done(
        f"{counted(index.rows, 'row')} {header.row_shape} in {counted(shards, 'shard')} in {out}, "
        f"recipe {header.recipe_hash}, {elapsed():.1f} s"
    )
    if as_json:
        facts = {
            "out": str(out), "dataset": header.dataset, "rows": index.rows,
            "failed_rows": index.failed_rows, "row_shape": header.row_shape,
            "dtype": header.dtype, "shards": shards, "recipe": header.recipe.get("name"),
            "recipe_hash": header.recipe_hash, "weights": header.weights,
        }  # fmt: skip
        click.echo(json.dumps(facts, indent=2))
    if index.failed_rows:
        for row_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {row_id}: {status}: {reason}")
        rows = counted(index.rows, "row")
        log_done(f"{index.failed_rows} of {rows} failed; they keep their rows, as NaN")
        ctx.exit(SOME_ROWS_FAILED)
