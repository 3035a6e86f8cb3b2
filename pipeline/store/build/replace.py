"""Replacing a finished folder by another: swap, move aside, move back, mark as superseded.

Callers must hold the output's lock.
"""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from pipeline.store.build.locking import WORK_FOLDER
from pipeline.store.files import write_text

_KEY_DIGITS = 8


def swap(new: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    """Replace a folder by a finished one; unrelated files of the old folder are kept.

    Two renames: after a kill in between, the old folder is in the work folder, and `finish_swap`
    restores it.

    Parameters
    ----------
    new : Path. The finished folder, on the disk of `out`.
    out : Path. The folder to replace.
    replaced : callable. Returns whether a file of the old folder is deleted with it; any other,
        such as the user's notes, is kept in `out`.
    """
    old = _swapped(out)
    out.rename(old)
    new.rename(out)
    _remove(old, out, replaced)


def finish_swap(out: Path, replaced: Callable[[Path], bool]) -> None:
    """Complete a killed `swap`: restore the old folder, or remove it if it was replaced."""
    old = _swapped(out)
    if not old.is_dir():
        return
    if out.exists():
        _remove(old, out, replaced)
    else:
        old.rename(out)


def move_aside(out: Path, key: str) -> Path:
    """Rename a folder or file to an unused name `NAME~KEY`; return it.

    Parameters
    ----------
    out : Path. The folder or file.
    key : str. Hex digits that identify its contents; the first 8 are used.
    """
    name = f"{out.name}~{key[:_KEY_DIGITS]}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    aside = next(path for name in names if not (path := out.with_name(name)).exists())
    out.rename(aside)
    return aside


def move_back(out: Path, key: str, fits: Callable[[Path], bool]) -> Path | None:
    """Undo `move_aside`; return the previous name, or None if nothing fits.

    Parameters
    ----------
    out : Path. An unused name.
    key : str. See `move_aside`.
    fits : callable. Returns whether a folder or file is the one to restore.
    """
    name = f"{out.name}~{key[:_KEY_DIGITS]}"
    for aside in sorted(out.parent.glob("*~*")):
        own = aside.name == name or aside.name.startswith(f"{name}-")
        if own and fits(aside):
            aside.rename(out)
            return aside
    return None


def mark_superseded(out: Path, key: str) -> None:
    """Record that the contents of `out` become obsolete once its successor is finished.

    Example: features of an encoder that is being refitted to other captions. They can never be
    requested again, so they are replaced instead of moved aside.

    Parameters
    ----------
    out : Path. The folder.
    key : str. Hex digits that identify its contents; for features their recipe hash.
    """
    marker = _marker(out.resolve())
    marker.parent.mkdir(exist_ok=True)
    write_text(marker, key)


def is_superseded(out: Path, key: str) -> bool:
    """Return whether `mark_superseded` has marked these contents."""
    try:
        return _marker(out).read_text(encoding="utf-8") == key
    except OSError:
        return False


def forget_superseded(out: Path) -> None:
    """Remove the mark, once the contents are replaced or known to be up to date."""
    _marker(out).unlink(missing_ok=True)


def _swapped(out: Path) -> Path:
    return out.parent / WORK_FOLDER / f"{out.name}.old"


def _marker(out: Path) -> Path:
    return out.parent / WORK_FOLDER / f"{out.name}.superseded"


def _remove(old: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    for path in old.iterdir():
        if not replaced(path) and not (out / path.name).exists():
            path.rename(out / path.name)
    # Last: if the run is killed earlier, `finish_swap` repeats these lines.
    shutil.rmtree(old)
