"""A place by its URL: a folder, HTTP(S), a protocol of fsspec, or a remote of a DVC repository."""

import configparser
import re
from pathlib import Path

from pipeline.shards.remote.folder_remote import FolderRemote
from pipeline.shards.remote.http_remote import HttpRemote
from pipeline.shards.remote.remote import Remote, RemoteError, WritableRemote

_REMOTE = re.compile(r'remote "(.+)"')
# Options of a DVC remote that change neither where it lies nor who may use it.
_HARMLESS = {"url", "jobs", "verify", "timeout", "read_timeout", "connect_timeout", "worktree"}


def open_remote(url: str | Path) -> Remote:
    """Open a place to read from; nothing is asked of it yet.

    Parameters
    ----------
    url : a folder, `file://`, `http(s)://`, `dvc:REMOTE/PATH`, or a URL of fsspec.

    Raises
    ------
    RemoteError
        It cannot be understood, or needs a package that is not installed.
    """
    url = _resolved(str(url))
    is_http = url.lower().startswith(("http://", "https://"))
    return HttpRemote(url) if is_http else FolderRemote(url)


def open_writable(url: str | Path) -> WritableRemote:
    """Open a place to write to.

    Raises
    ------
    RemoteError
        See `open_remote`; HTTP(S) is read only.
    """
    remote = open_remote(url)
    if isinstance(remote, FolderRemote):
        return remote
    raise RemoteError(
        f"{remote.shown}: HTTP(S) is read only; push to the folder that the server shows, or to a "
        "bucket"
    )


def _resolved(url: str) -> str:
    """Return the URL that a DVC remote's name and a path below it stand for; any other as it is."""
    if not url:
        raise RemoteError("an empty URL is no place; give a folder or a URL")
    if not url.startswith("dvc:"):
        return url
    remote, _, path = url.removeprefix("dvc:").strip("/").partition("/")
    folder = next(
        (f / ".dvc" for f in (Path.cwd(), *Path.cwd().parents) if (f / ".dvc").is_dir()), None
    )
    if folder is None:
        raise RemoteError(f"{url}: neither this folder nor one above it is a DVC repository (.dvc)")
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read([folder / "config", folder / "config.local"], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise RemoteError(f"{folder / 'config'} cannot be read ({error})") from error
    sections = {section.strip("'"): section for section in config.sections()}
    remotes = {
        found[1]: section
        for name, section in sections.items()
        if (found := _REMOTE.fullmatch(name))
    }
    if remote not in remotes:
        raise RemoteError(
            f"{url}: {folder / 'config'} has no remote {remote!r}; it has "
            f"{', '.join(remotes) or 'none'}"
        )
    options = config[remotes[remote]]
    if further := sorted({*options} - _HARMLESS):
        raise RemoteError(
            f"{url}: the remote has the options {', '.join(further)}, which only DVC itself "
            "understands; give its URL, and its credentials as its back end takes them from the "
            "environment"
        )
    root = options.get("url", "")
    if not root:
        raise RemoteError(f"{url}: {folder / 'config'} gives no url for the remote {remote!r}")
    if "://" not in root:
        root = str((folder / Path(root).expanduser()).resolve())
    return f"{root.rstrip('/')}/{path}".rstrip("/")
