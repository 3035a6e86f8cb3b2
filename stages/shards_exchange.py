"""`pipeline shards push` and `pull`: transfer of feature sets between machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.store.wording import without_secrets
from stages.command import PATH, Command, option
from stages.console import CONSOLE, OUTPUT, elapsed, log_done

if TYPE_CHECKING:
    from pipeline.store.share.meter import Transfer


@click.command("push", cls=Command)
@click.argument("path", type=PATH, metavar="DIR")
@click.argument("url")
def push_command(path: Path, url: str) -> None:
    """Verify a feature folder and copy it to a remote folder, the index last.

    URL is a folder, file://, dvc:REMOTE/PATH, or any URL that fsspec can write to, such as s3://
    and ssh:// with their packages. Files that exist there are not sent again.

    \b
    Example:
      pipeline shards push data/features/scenes/efficientnet-lite0-pool /srv/features/scenes
    """
    from pipeline.store.share.push import push

    _log_transfer(without_secrets(url), push(path, url, monitor=CONSOLE))


@click.command("pull", cls=Command)
@click.argument("url")
@click.argument("out", type=OUTPUT, metavar="DIR")
@option("--split", "Fetch only the rows of this split of --dataset.  [default: all rows]")
@option("--dataset", "Prepared dataset that has the split.", PATH)
@option("--ids", "File with one id per line: fetch these rows, in this order.", PATH)
@option("--recipe", "Required recipe, by name or hash.")
def pull_command(url: str, out: Path, **options: Any) -> None:
    """Fetch and verify a shared feature set, or some of its rows.

    URL is a folder, http(s)://, file://, dvc:REMOTE/PATH, or any URL that fsspec can read. The same
    command resumes an interrupted pull.

    \b
    Example:
      pipeline shards pull https://example.org/features/scenes data/features/scenes/pulled \\
          --split test --dataset data/scenes
    """
    from pipeline.store.share.pull import pull

    _log_transfer(out, pull(url, out, **options, monitor=CONSOLE))


def _log_transfer(where: str | Path, done: "Transfer") -> None:
    seconds = elapsed()
    log_done(
        f"{where}: {done.index.describe()}; {done.moved / 1e6:.2f} MB moved, the whole set has "
        f"{done.size / 1e6:.2f} MB; {seconds:.1f} s, {done.moved / 1e6 / seconds:.1f} MB/s"
    )
