"""Opening a remote folder by URL: local, HTTP(S), any fsspec protocol, or a DVC remote."""

import configparser
import os
import re
from functools import lru_cache
from pathlib import Path

from pipeline.store.extras import require
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError
from pipeline.store.wording import without_secrets

# Package of a module that fsspec needs, where the names differ.
_PACKAGES = {"smbclient": "smbprotocol"}
_REMOTE = re.compile(r"""'?remote "(.+)"'?""")
# Options of a DVC remote that affect neither its location nor its credentials.
_HARMLESS = {"url", "jobs", "verify", "timeout", "read_timeout", "connect_timeout", "worktree"}


def open_remote(url: str | Path) -> Remote:
    """Open a folder for reading; no request is sent yet.

    `url` is a folder, `file://`, `http(s)://`, `dvc:REMOTE/PATH`, or any URL of fsspec.
    """
    url = _resolved(str(url))
    if url.lower().startswith(("http://", "https://")):
        require("aiohttp", "http:// and https:// need")
        from pipeline.store.objects.web import open_web

        return open_web(url)
    fsspec = require("fsspec", "remote folders need")
    shown = without_secrets(url)
    try:
        files, root = fsspec.url_to_fs(url)
    except ImportError as error:
        module = str(getattr(error.__cause__, "name", ""))
        raise RemoteError(
            f"{shown}: {error}; run `pip install {_PACKAGES.get(module, module)}`, then rerun the "
            "command"
        ) from error
    except ValueError as error:
        raise RemoteError(
            f"{shown}: unknown location ({error}); expected a folder, file://, http://, https://, "
            "dvc:REMOTE/PATH, or an fsspec protocol such as s3://"
        ) from error
    except Exception as error:
        raise RemoteError(
            f"{shown} cannot be opened ({type(error).__name__}: {str(error)[:200]}); check the "
            "URL, and the credentials that its back end reads from the environment"
        ) from error
    return Remote(files, root.rstrip("/"), shown.rstrip("/"))


def opened(folder: str) -> Remote:
    """Return a folder that is opened once in a process: connections do not survive a fork."""
    return _opened(folder, os.getpid())


@lru_cache(maxsize=256)
def _opened(folder: str, process: int) -> Remote:
    return open_remote(folder)


def open_writable(url: str | Path) -> Remote:
    """Open a folder for writing; as `open_remote`, but HTTP(S) raises RemoteError."""
    remote = open_remote(url)
    if remote.is_web:
        raise RemoteError(
            f"{remote.shown}: HTTP(S) is read-only; push to the folder that the server publishes, "
            "or to a bucket"
        )
    return remote


def _resolved(url: str) -> str:
    """Return the URL of `dvc:REMOTE/PATH`; any other URL unchanged."""
    if not url:
        raise RemoteError("the URL is empty; pass a folder or a URL")
    if not url.startswith("dvc:"):
        return url
    remote, _, path = url.removeprefix("dvc:").strip("/").partition("/")
    folder = next(
        (f / ".dvc" for f in (Path.cwd(), *Path.cwd().parents) if (f / ".dvc").is_dir()), None
    )
    if folder is None:
        raise RemoteError(f"{url}: this folder is not in a DVC repository (.dvc); change to one")
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read([folder / "config", folder / "config.local"], encoding="utf-8-sig")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise RemoteError(f"{folder / 'config'} cannot be read ({error})") from error
    named = {_REMOTE.fullmatch(section): section for section in config.sections()}
    remotes = {match[1]: config[section] for match, section in named.items() if match}
    options = remotes.get(remote)
    if options is None or not options.get("url"):
        raise RemoteError(
            f"{url}: {folder / 'config'} has no remote {remote!r} with a url; known: "
            f"{', '.join(remotes) or 'none'}"
        )
    if further := sorted({*options} - _HARMLESS):
        raise RemoteError(
            f"{url}: the remote has the options {', '.join(further)}, which only DVC supports; use "
            "its URL, and put its credentials where its back end reads them: in the environment"
        )
    root = options["url"]
    if "://" not in root:
        root = str((folder / Path(root).expanduser()).resolve())
    return f"{root.rstrip('/')}/{path}".rstrip("/")
