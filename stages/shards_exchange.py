"""`pipeline shards push` and `pull`: transfer of feature sets between machines."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.wording import without_secrets
from stages.command import PATH, Command
from stages.console import CONSOLE, OUTPUT, log_done

if TYPE_CHECKING:
    from pipeline.store.share.meter import Transfer


@click.command("push", cls=Command)
@click.argument("path", type=PATH, metavar="DIR")
@click.argument("url")
def push_command(path: Path, url: str) -> None:
    """Copy a feature folder to a remote folder, with verification, index last.

    URL is a folder, file://, dvc:REMOTE/PATH, or any URL that fsspec can write to, such as s3://
    and ssh:// with their packages. Files that exist there are not sent again.

    \b
    Example:
      pipeline shards push data/features/scenes/efficientnet-lite0-pool /srv/features/scenes
    """
    from pipeline.store.share.push import push

    started = time.monotonic()
    _log_transfer(without_secrets(url), push(path, url, monitor=CONSOLE), started)


@click.command("pull", cls=Command)
@click.argument("url")
@click.argument("out", type=OUTPUT, metavar="DIR")
@click.option(
    "--split", help="Fetch only the rows of this split of --dataset.  [default: all rows]"
)
@click.option("--dataset", type=PATH, help="Prepared dataset that has the split.")
@click.option(
    "--ids", type=PATH, help="File with one id per line: fetch these rows, in this order."
)
@click.option("--recipe", help="Required recipe, by name or hash.")
def pull_command(url: str, out: Path, **options: Any) -> None:
    """Fetch a shared feature set, or some of its rows, with verification.

    URL is a folder, http(s)://, file://, dvc:REMOTE/PATH, or any URL that fsspec can read. The same
    command resumes an interrupted pull.

    \b
    Example:
      pipeline shards pull https://example.org/features/scenes data/features/scenes/pulled \\
          --split test --dataset data/scenes
    """
    from pipeline.store.share.pull import pull

    started = time.monotonic()
    _log_transfer(out, pull(url, out, **options, monitor=CONSOLE), started)


def _log_transfer(where: str | Path, done: "Transfer", started: float) -> None:
    seconds = time.monotonic() - started
    log_done(
        f"{where}: {done.index.describe()}; {done.moved / 1e6:.2f} MB moved, the whole set has "
        f"{done.size / 1e6:.2f} MB; {seconds:.1f} s, {done.moved / 1e6 / seconds:.1f} MB/s"
    )
