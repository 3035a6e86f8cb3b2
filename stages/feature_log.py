"""The last lines of a command that has made a feature set; imported once it is made."""

from pathlib import Path

import click

from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.index import FeatureIndex
from stages.console import SOME_ROWS_FAILED, log_done

_REASONS_SHOWN = 5


def log_made(ctx: click.Context, out: Path, index: FeatureIndex, seconds: float) -> None:
    """Write what a command has made, and end with status 3 where rows failed."""
    shards = len(index.shards)
    log_done(
        f"{index.rows} rows {index.header.row_shape} in {shards} shard{'s' * (shards > 1)} in "
        f"{out}, recipe {index.header.recipe_hash}, {seconds:.1f} s"
    )
    if index.failed_rows:
        for row_id, status, reason in FeatureSet(out).failures()[:_REASONS_SHOWN]:
            log_done(f"failed: {row_id}: {status}: {reason}")
        log_done(f"{index.failed_rows} of {index.rows} rows failed; they keep their rows, as NaN")
        ctx.exit(SOME_ROWS_FAILED)
