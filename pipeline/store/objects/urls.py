"""URLs in place of paths: `Path("s3://bucket/x")` is `s3:/bucket/x`, which still names the URL.

Manifests, feature folders and options therefore carry one kind of path, and only functions that
open files ask what it is.
"""

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pipeline.store.errors import WrongUsage
from pipeline.store.wording import without_secrets

# At least two letters, since `C:/` is a drive; a chain, such as simplecache::s3://b, is refused.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def url_of(path: str | Path) -> str | None:
    """Return the URL that a path denotes; None for a path on this machine."""
    text = os.fspath(path)
    # Most paths are local, and there are millions of them.
    if ":/" not in text or (match := _URL.fullmatch(text)) is None or _is_folder(match[1]):
        return None
    scheme, rest = match[1].lower(), match[2]
    return f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


def absolute(path: Path) -> Path:
    """Return a path that names the same file from any current folder."""
    return path if url_of(path) is not None else path.absolute()


def common_folder(files: Iterable[Path]) -> Path:
    """Return the deepest folder that contains all files, which are here or in one bucket."""
    folders = {absolute(file).parent for file in files}
    machines = {url and tuple(url.split("/")[:3]) for url in map(url_of, folders)}
    if len(machines) > 1:
        raise WrongUsage(
            f"{', '.join(sorted(map(shown, folders))[:5])}: expected files that are all on this "
            "machine, or all in one bucket or on one server; name those of each alone"
        )
    return Path(os.path.commonpath(folders))


def shown(path: str | Path) -> str:
    """Return a path for messages: of a URL, its usual form without secrets."""
    return os.fspath(path) if (url := url_of(path)) is None else without_secrets(url)


@lru_cache
def _is_folder(scheme: str) -> bool:
    """Return whether the current folder has one called `s3:`."""
    return Path(f"{scheme}:").exists()
