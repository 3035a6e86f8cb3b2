"""Shared options of `pipeline prepare`, and the writing of its dataset."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from pipeline.datasets.checks import check_split
from pipeline.store.wording import counted
from stages.command import PATH, Decorator, add_options, flag, option
from stages.console import OUTPUT, elapsed, log_done

if TYPE_CHECKING:
    from pipeline.datasets.manifest import Manifest

T = TypeVar("T")
P = ParamSpec("P")


class Assignment(click.ParamType):
    """SPLIT=VALUE as (split, value); VALUE without a split, if allowed, as (None, value)."""

    def __init__(self, form: str, read: Callable[[str], Any], split_needed: bool = True) -> None:
        self.name = form
        self._read = read
        self._split_needed = split_needed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, Any]:
        """Return the pair; raise if the value has another form."""
        split, equals, text = value.partition("=")
        named = bool(equals) and check_split(split) is None
        try:
            if named and text:
                return split, self._read(text)
            if not self._split_needed and value and not named:
                return None, self._read(value)
            raise ValueError(value)
        except ValueError as error:
            form = f"{value!r} is not of the form {self.name}"
            raise click.BadParameter(form, ctx, param) from error


class SplitName(click.ParamType):
    """A plain name of a split."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; raise if it is invalid."""
        if error := check_split(value):
            raise click.BadParameter(f"{value!r} {error}", ctx, param)
        return str(value)


def by_split(
    ctx: click.Context, param: click.Parameter, pairs: Sequence[tuple[str, T]]
) -> dict[str, T]:
    """Convert the values of a repeatable option to a dict; raise if a split is named twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise click.BadParameter("a split is named twice", ctx, param)
    return values


def count(text: str) -> int:
    """Return a whole number from 0 on; ValueError for any other text."""
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


def path_option(name: str, text: str, required: bool = True, kind: click.Path = PATH) -> Decorator:
    """Return an option whose value is a path."""
    return click.option(name, required=required, type=kind, help=text)


def split_option(
    name: str, form: str, read: Callable[[str], Any], text: str, parameter: str = ""
) -> Decorator:
    """Return a repeatable option of the form SPLIT=VALUE, whose value is a dict."""
    names = (name, parameter) if parameter else (name,)
    kind = Assignment(form, read)
    return click.option(*names, type=kind, multiple=True, callback=by_split, help=text)


name_option = option("--name", "Name of the dataset.  [default: name of the folder OUT]")
out_option = path_option("--out", "Output folder of the dataset.", kind=OUTPUT)
expect_option = split_option(
    "--expect",
    "SPLIT=COUNT",
    count,
    "Required number of images of a split; repeatable.  [default: not checked]",
)
table_options = add_options(
    option("--path-column", "Column of the paths.", metavar="NAME"),
    option(
        "--caption-column",
        "Caption column; repeatable.",
        name="caption_columns",
        metavar="NAME",
        multiple=True,
    ),
    option(
        "--columns",
        "Columns of a text file without a header, such as path,caption.",
        default="",
        metavar="NAME,NAME...",
    ),
    option(
        "--caption-separator",
        r"Text between several captions in a cell, such as | or \n.",
        metavar="TEXT",
    ),
    option("--split-column", "Column of the splits.", metavar="NAME"),
    option(
        "--id-column",
        "Column of the ids.  [default of each column: detected by name]",
        metavar="NAME",
    ),
    option(
        "--encoding",
        "Encoding of the file, such as cp1252.  [default: by its byte order mark, else UTF-8]",
        metavar="NAME",
    ),
    flag("--split-by-folder", "Use the first folder of a path as the split of its image."),
    flag("--follow-links", "Follow links out of ROOT and its repository, now and in `serve`."),
    flag("--skip-bad", "Skip invalid rows, and list them in OUT/left-out.csv."),
)


def write_dataset(
    out: Path, read: Callable[P, "Manifest"], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Read a dataset with a function of the library, write it, and log it."""
    manifest = read(*args, **kwargs)
    manifest.write(out)
    log_dataset(manifest, out)


def log_dataset(manifest: "Manifest", out: Path) -> None:
    """Log the contents of a dataset, with the notes of its preparation."""
    splits = ", ".join(f"{split} {n}" for split, n in manifest.counts.items())
    captions = sum(len(e.captions) for e in manifest.entries)
    notes = "".join(
        f"; {key.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in manifest.notes.items()
        if key != "source_files"
    )
    log_done(
        f"{counted(len(manifest.entries), manifest.media.removesuffix('s'))} ({splits}), "
        f"{counted(captions, 'caption')} in {out}, {elapsed():.1f} s{notes}"
        + (f"; phrases with boxes: {len(manifest.phrases)}" if manifest.phrases else "")
    )
