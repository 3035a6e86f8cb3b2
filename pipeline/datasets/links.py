"""Which links are followed: those into the image root, its project, or the cache of DVC."""

import os
from configparser import Error, RawConfigParser
from pathlib import Path

LINKS_FOLLOWED = "links_followed"
"""Note of a dataset whose links are all followed, as its user asked."""


def own_folders(root: Path) -> tuple[Path, ...]:
    """Return the folders of an image root's own data, resolved: links into them are followed.

    They are the root, its project (the nearest folder with `.dvc` or `.git`) and the project's DVC
    cache, which may be elsewhere.
    """
    root = Path(os.path.realpath(root))
    for folder in (root, *root.parents):
        if (folder / ".dvc").is_dir() or (folder / ".git").exists():
            return root, folder, *_cache_of(folder / ".dvc")
    return (root,)


def is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    """Return whether a path is in one of some resolved folders, wherever its links lead."""
    # Not `resolve`, which raises on circular links.
    target = Path(os.path.realpath(path))
    return any(target.is_relative_to(folder) for folder in folders)


def _cache_of(settings: Path) -> tuple[Path, ...]:
    """Return the folder of the cache that DVC's settings name, if any."""
    parser = RawConfigParser(strict=False)
    # Unlike `Path.home`, it returns a path for a user without a home, too (`docker run --user`).
    home = os.path.expanduser("~/.config")  # noqa: PTH111
    of_user = Path(os.environ.get("XDG_CONFIG_HOME") or home, "dvc")
    files = [of_user / "config", settings / "config", settings / "config.local"]
    try:
        parser.read(files, encoding="utf-8-sig")
    except (Error, OSError, UnicodeDecodeError):
        return ()
    named = parser.get("cache", "dir", fallback="")
    return (Path(os.path.realpath(settings / named)),) if named else ()
