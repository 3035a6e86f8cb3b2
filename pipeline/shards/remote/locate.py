"""A remote folder by its URL: local, HTTP(S), a protocol of fsspec, or a remote of DVC."""

import configparser
import re
from pathlib import Path

import fsspec

from pipeline.shards.remote.remote import Remote
from pipeline.shards.remote.retry import RemoteError
from pipeline.wording import without_secrets

# Where a module that fsspec lacks has another name than its package.
_PACKAGES = {"smbclient": "smbprotocol"}
_REMOTE = re.compile(r'remote "(.+)"')
# Options of a DVC remote that change neither its location nor who may use it.
_HARMLESS = {"url", "jobs", "verify", "timeout", "read_timeout", "connect_timeout", "worktree"}


def open_remote(url: str | Path) -> Remote:
    """Open a folder to read from; nothing is requested from it yet.

    Parameters
    ----------
    url : a folder, `file://`, `http(s)://`, `dvc:REMOTE/PATH`, or any URL of fsspec.

    Raises
    ------
    RemoteError
        The URL is not valid, or its protocol needs a package that is not installed.
    """
    url = _resolved(str(url))
    if url.lower().startswith(("http://", "https://")):
        from pipeline.shards.remote.web import open_web

        return open_web(url)
    shown = without_secrets(url)
    try:
        files, root = fsspec.url_to_fs(url)
    except ImportError as error:
        module = str(getattr(error.__cause__, "name", ""))
        raise RemoteError(
            f"{shown}: {error}; run `pip install {_PACKAGES.get(module, module)}`, then the same "
            "command again"
        ) from error
    except ValueError as error:
        raise RemoteError(
            f"{shown}: unknown location ({error}); a folder, file://, http://, https://, "
            "dvc:REMOTE/PATH, or a protocol of fsspec such as s3:// was expected"
        ) from error
    except Exception as error:
        raise RemoteError(
            f"{shown} cannot be opened ({type(error).__name__}: {str(error)[:200]}); check the "
            "URL, and the credentials that its back end takes from the environment"
        ) from error
    return Remote(files, root.rstrip("/"), shown.rstrip("/"))


def open_writable(url: str | Path) -> Remote:
    """Open a folder to write to.

    Raises
    ------
    RemoteError
        See `open_remote`; HTTP(S) is read only.
    """
    remote = open_remote(url)
    if remote.is_web:
        raise RemoteError(
            f"{remote.shown}: HTTP(S) is read only; push to the folder that the server shows, or "
            "to a bucket"
        )
    return remote


def _resolved(url: str) -> str:
    """Return the URL that `dvc:REMOTE/PATH` stands for; any other URL unchanged."""
    if not url:
        raise RemoteError("the URL is empty; give a folder or a URL")
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
            "understands; give its URL, and its credentials where its back end reads them: in the "
            "environment"
        )
    root = options.get("url", "")
    if not root:
        raise RemoteError(f"{url}: {folder / 'config'} gives no url for the remote {remote!r}")
    if "://" not in root:
        root = str((folder / Path(root).expanduser()).resolve())
    return f"{root.rstrip('/')}/{path}".rstrip("/")
