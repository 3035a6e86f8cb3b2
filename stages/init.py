"""`pipeline init`: the files with which DVC runs the commands in a folder of one's own."""

import json
import os
from importlib.resources import files
from pathlib import Path

import click

from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.errors import WrongUsage
from pipeline.store.files import OutputError
from stages.command import FOLDER, Command, option
from stages.console import log_done

# Unfinished work is not recorded, nor what a search embeds and can embed again.
_IGNORED = {".gitignore": [f"{WORK_FOLDER}/", "data/search/"], ".dvcignore": [f"{WORK_FOLDER}/"]}

_EXISTING = click.Path(exists=True, path_type=Path)


@click.command(cls=Command)
@click.argument("folder", type=FOLDER, metavar="[DIR]", default=Path())
@option("--root", "Folder of your images.", _EXISTING)
@option("--captions", "Table of their captions, as in `pipeline prepare folder`.", _EXISTING)
def init(folder: Path, root: Path | None, captions: Path | None) -> None:
    """Write dvc.yaml and params.yaml, with which DVC computes recall tables of your images.

    Without --root and --captions, the dataset is 60 drawn scenes. Existing files of these names are
    never changed; lines are added to .gitignore and .dvcignore. docs/dvc.md has an example.

    \b
    Examples:
      pipeline init --root images --captions captions.csv
      pipeline init retrieval
    """
    if captions and not root:
        raise WrongUsage("--captions needs --root, the folder of the images")
    paths = {"root": root, "captions": captions}
    texts = _texts({key: _as_seen(path, folder) for key, path in paths.items() if path is not None})
    if existing := [name for name in texts if (folder / name).exists()]:
        for name, text in texts.items():
            click.echo(f"# {name}\n{text}")
        raise OutputError(
            f"{folder / existing[0]} exists, and no file was written; add what is printed by hand, "
            "or use a new folder: `pipeline init retrieval`, then `dvc repro retrieval/dvc.yaml`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, lines in _IGNORED.items():
        _add_lines(folder / name, lines)
    above = [folder.absolute(), *folder.absolute().parents]
    missing = [tool for tool in ("git", "dvc") if not any((f / f".{tool}").exists() for f in above)]
    repro = "dvc repro" if folder.resolve() == Path.cwd() else f"dvc repro {folder / 'dvc.yaml'}"
    steps = [*(f"{tool} init" for tool in missing), repro]
    log_done(f"{', '.join([*texts, *_IGNORED])} in {folder.absolute()}")
    log_done(f"next: {', '.join(f'`{step}`' for step in steps)}")


def _as_seen(path: Path, folder: Path) -> str:
    """Return a path relative to the folder of the files, unless it is absolute."""
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)


def _texts(source: dict[str, str]) -> dict[str, str]:
    """Return the text of each file for the paths of images and captions, or for drawn scenes."""
    inputs = [*source.values()]
    options = {"kind": "folder", **source} if source else {"kind": "scenes", "num-images": 60}
    values = {
        "<name>": "mine" if source else "scenes",
        "<source>": json.dumps(options),
        "<inputs>": json.dumps(inputs),
        "<images>": json.dumps(["data/${dataset}", *inputs[:1]]),
    }
    texts = {}
    for file in ("dvc.yaml", "params.yaml"):
        text = (files("stages") / "templates" / f"own-{file}").read_text(encoding="utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        texts[file] = text
    return texts


def _add_lines(path: Path, lines: list[str]) -> None:
    """Add the lines to a file that it does not have."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    end = "\n" if text and not text.endswith("\n") else ""
    if added := [f"{line}\n" for line in lines if line not in text.splitlines()]:
        path.write_text("".join([text, end, *added]), encoding="utf-8")
