"""Replacing a finished output by another: swap, move aside and back, mark as superseded.

Callers must hold the output's lock.
"""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from pipeline.store.builder.locking import work_file
from pipeline.store.files import write_text

_KEY_DIGITS = 8
_SWAPPED, _SUPERSEDED = ".old", ".superseded"

Contents = tuple[str, str]
"""Key of an output's contents, and how they differ from the requested ones; "" if they do not."""


def swap(new: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    """Replace a folder by a finished one on its disk; files that are not `replaced` are kept."""
    # Two renames, since none exchanges two folders on every system. After a kill between them,
    # `out` does not exist, and `finish_swap` restores the old folder; after both, it removes it.
    old = work_file(out, _SWAPPED)
    out.rename(old)
    new.rename(out)
    _remove(old, out, replaced)


def finish_swap(out: Path, replaced: Callable[[Path], bool]) -> None:
    """Complete a killed `swap`: restore the old folder, or remove it if it was replaced."""
    old = work_file(out, _SWAPPED)
    if not old.is_dir():
        return
    if out.exists():
        _remove(old, out, replaced)
    else:
        old.rename(out)


def make_way(out: Path, requested: str, contents: Callable[[Path], Contents | None]) -> list[str]:
    """Move other contents of a folder or file aside, and the requested ones back; return log lines.

    `requested` is their key; `contents` returns None for other files and for what is to stay. The
    name aside is an unused `NAME~KEY`, with 8 hex digits of the key.
    """
    lines: list[str] = []
    key, unlike = contents(out) or ("", "")
    # Superseded contents stay until their successor is finished: a kill must not leave none.
    if unlike and is_superseded(out, key):
        lines.append(f"{out} {unlike}: all rows are recomputed and then replace it")
    elif unlike:
        name = f"{out.name}~{key[:_KEY_DIGITS]}"
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        aside = next(path for name in names if not (path := out.with_name(name)).exists())
        out.rename(aside)
        lines.append(f"{out} {unlike}: moved aside to {aside}")
    if out.exists():
        return lines
    name = f"{out.name}~{requested[:_KEY_DIGITS]}"
    for aside in sorted(out.parent.glob("*~*")):
        if aside.name == name or aside.name.startswith(f"{name}-"):
            _, unlike = contents(aside) or ("", "no such output")
            if not unlike:
                aside.rename(out)
                return [*lines, f"{aside} was made with the requested options: moved back to {out}"]
    return lines


def mark_superseded(out: Path, key: str) -> None:
    """Record that the contents of `out` become obsolete once its successor is finished."""
    # Such as features of an encoder that is refitted to other captions: they can never be requested
    # again, so they are replaced instead of moved aside.
    marker = work_file(out, _SUPERSEDED)
    marker.parent.mkdir(exist_ok=True)
    write_text(marker, key)


def is_superseded(out: Path, key: str) -> bool:
    """Return whether `mark_superseded` has marked these contents."""
    try:
        return work_file(out, _SUPERSEDED).read_text(encoding="utf-8") == key
    except OSError:
        return False


def forget_superseded(out: Path) -> None:
    """Remove the mark, once the contents are replaced or known to be up to date."""
    work_file(out, _SUPERSEDED).unlink(missing_ok=True)


def _remove(old: Path, out: Path, replaced: Callable[[Path], bool]) -> None:
    for path in old.iterdir():
        if not replaced(path) and not (out / path.name).exists():
            path.rename(out / path.name)
    # Last: if the run is killed earlier, `finish_swap` repeats these lines.
    shutil.rmtree(old)
