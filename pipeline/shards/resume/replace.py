"""One finished folder in the place of another: swapped, moved aside, moved back, superseded.

For the holder of the output's lock alone.
"""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from pipeline.files import write_text
from pipeline.shards.resume.locking import WORK_FOLDER

_KEY_DIGITS = 8


def swap(new: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    """Put a finished folder in the place of another, whose other files move with the name.

    Two renames: a kill in between leaves the old folder in the work folder, from where
    `finish_swap` returns it.

    Parameters
    ----------
    new : Path. The finished folder, on the disk of `out`.
    out : Path. The folder that is replaced.
    replaced : callable. Returns whether a file of the old folder goes with it; any other, such as a
        note of the user's, is kept in `out`.
    """
    old = _swapped(out)
    out.rename(old)
    new.rename(out)
    _remove(old, out, replaced)


def finish_swap(out: Path, replaced: Callable[[Path], bool]) -> None:
    """Finish what a killed `swap` left: return the old folder, or remove it if it is replaced."""
    old = _swapped(out)
    if not old.is_dir():
        return
    if out.exists():
        _remove(old, out, replaced)
    else:
        old.rename(out)


def move_aside(out: Path, key: str) -> Path:
    """Rename a folder or file to `NAME~KEY`, a name that nothing has; return it.

    Parameters
    ----------
    out : Path. The folder or file.
    key : str. Hex digits that name its contents; the first 8 are used.
    """
    name = f"{out.name}~{key[:_KEY_DIGITS]}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    aside = next(path for name in names if not (path := out.with_name(name)).exists())
    out.rename(aside)
    return aside


def move_back(out: Path, key: str, fits: Callable[[Path], bool]) -> Path | None:
    """Give what was moved aside its name again; return where it was, None if nowhere.

    Parameters
    ----------
    out : Path. The name, which nothing has.
    key : str. See `move_aside`.
    fits : callable. Returns whether a folder or file is the one to move back.
    """
    name = f"{out.name}~{key[:_KEY_DIGITS]}"
    for aside in sorted(out.parent.glob("*~*")):
        own = aside.name == name or aside.name.startswith(f"{name}-")
        if own and fits(aside):
            aside.rename(out)
            return aside
    return None


def mark_superseded(out: Path, key: str) -> None:
    """Record that the contents of `out` become useless once others are finished there.

    As features of an encoder that is about to be fitted to other captions: nobody can ask for them
    again, so that they are replaced, not moved aside.

    Parameters
    ----------
    out : Path. The folder.
    key : str. Hex digits that name its contents, of features their recipe hash.
    """
    marker = _marker(out.resolve())
    marker.parent.mkdir(exist_ok=True)
    write_text(marker, key)


def is_superseded(out: Path, key: str) -> bool:
    """Return whether `mark_superseded` has named these contents."""
    try:
        return _marker(out).read_text(encoding="utf-8") == key
    except OSError:
        return False


def forget_superseded(out: Path) -> None:
    """Remove the mark, once the contents are others or known to be right."""
    _marker(out).unlink(missing_ok=True)


def _swapped(out: Path) -> Path:
    return out.parent / WORK_FOLDER / f"{out.name}.old"


def _marker(out: Path) -> Path:
    return out.parent / WORK_FOLDER / f"{out.name}.superseded"


def _remove(old: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    for path in old.iterdir():
        if not replaced(path) and not (out / path.name).exists():
            path.rename(out / path.name)
    shutil.rmtree(old)
