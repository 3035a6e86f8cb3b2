"""Files of a server, read by HTTP(S): ranges, time-outs, redirects, what a server may not do."""

import re
import reprlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationValueError, SSLError

from pipeline.shards.remote.remote import (
    Forbidden,
    NoByteRanges,
    NotThere,
    RemoteError,
    TransientError,
    without_secrets,
)

CONNECT_SECONDS, READ_SECONDS = 15.0, 60.0
CONNECTIONS = 8
MAX_REDIRECTS = 5
_BLOCK = 1 << 16
_REDIRECTS = {301, 302, 303, 307, 308}
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_CONNECTION = re.compile(r"^\w+\(host=[^)]*\): ")
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "caption-feature-pipeline"}


class HttpRemote:
    """A folder of a server; a query of its URL, such as a signature, goes with every file.

    Certificates are those that the system trusts; proxies are taken from the environment. It may be
    used by threads, each on a connection of its own.

    Attributes
    ----------
    shown : the URL without its query.
    """

    def __init__(self, url: str) -> None:
        """Take the URL of the folder; nothing is asked for yet.

        Raises
        ------
        RemoteError
            It holds a user's name or password, or no host.
        """
        parts = _parts_of(url)
        if parts is None or not parts.hostname or "@" in parts.netloc:
            raise RemoteError(
                f"{without_secrets(url)}: a URL with a sound host and port, and without user and "
                "password, was expected: passwords are not sent by HTTP; mount the folder, or use "
                "a back end with credentials of its own, such as s3:// or sftp://"
            )
        self._parts = parts._replace(path=parts.path.rstrip("/"), fragment="")
        self.shown = without_secrets(urlunsplit(self._parts))
        self._pool = _pool(parts.scheme, parts.hostname)

    def beside(self, suffix: str) -> "HttpRemote":
        """Return the folder whose name has a suffix more."""
        return HttpRemote(urlunsplit(self._parts._replace(path=self._parts.path + suffix)))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Generator[bytes]:
        """Yield bytes of a file; see `Remote.read`.

        Raises
        ------
        NotThere, NoByteRanges, TransientError, RemoteError
        """
        with self._answer(name, start, stop) as answer:
            left = stop - start if stop is not None else None
            while left is None or left > 0:
                block = answer.read1(_BLOCK if left is None else min(left, _BLOCK), False)
                if not block:
                    return
                left = None if left is None else left - len(block)
                yield block
            if answer.length_remaining == 0:
                answer.read1(1, False)  # the end: the connection can be used again

    @contextmanager
    def _answer(self, name: str, start: int, stop: int | None) -> Generator[Any]:
        """Give the answer to a request, closed afterwards, and explain what goes wrong."""
        shown = f"{self.shown}/{name}"
        answer = None
        try:
            answer = self._ask(name, start, stop, shown)
            yield answer
        except SSLError as error:
            raise RemoteError(
                f"{shown}: no safe connection ({_short(error)}); the server's certificate must be "
                "one that this system trusts (SSL_CERT_FILE names others)"
            ) from error
        except LocationValueError as error:
            raise RemoteError(f"{shown}: {_short(error)}; check the URL") from error
        except (HTTPError, OSError) as error:
            raise TransientError(f"{shown}: {_short(error)}") from error
        finally:
            if answer is not None:
                answer.close()

    def _ask(self, name: str, start: int, stop: int | None, shown: str) -> Any:
        headers = dict(_HEADERS)
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        url = urlunsplit(self._parts._replace(path=f"{self._parts.path}/{quote(name)}"))
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._pool.request(
                "GET",
                url,
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            )
            if answer.status not in _REDIRECTS:
                if fault := _fault(answer, start, shown):
                    answer.close()
                    raise fault
                return answer
            target = answer.headers.get("Location", "")
            answer.close()
            url = _followed(url, target, shown)
        raise RemoteError(
            f"{shown}: more than {MAX_REDIRECTS} redirects; the server sends in circles, or the "
            "URL is not the one of the files themselves"
        )


def _parts_of(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it has none, as with half an IPv6 address."""
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port > 0 else None
    except ValueError:
        return None


def _followed(url: str, target: str, shown: str) -> str:
    """Return where a redirect leads, if it may be followed."""
    try:
        there = urljoin(url, target)
    except ValueError:
        there = target
    parts, scheme = _parts_of(there), urlsplit(url).scheme
    if not target or parts is None:
        raise RemoteError(
            f"{shown}: the server leads to {reprlib.repr(target)}, which is no URL; ask who runs "
            "it, or give the right URL"
        )
    if parts.scheme not in ("https", scheme):
        raise RemoteError(
            f"{shown}: the server leads from {scheme} to {parts.scheme}:, which is not followed; "
            "ask who runs it, or give the right URL"
        )
    return there


def _pool(scheme: str, host: str) -> urllib3.PoolManager:
    options: dict[str, Any] = {"maxsize": CONNECTIONS, "num_pools": 4}
    proxy = getproxies().get(scheme)
    if proxy and not proxy_bypass(host):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def _fault(answer: Any, start: int, shown: str) -> RemoteError | None:
    """Return what is wrong with an answer; None if it has the bytes that were asked for."""
    status = answer.status
    if status == 206:
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start:
            return NoByteRanges(f"{shown}: the server gives other bytes than those from {start}")
        return None
    if status == 200:
        return (
            NoByteRanges(f"{shown}: the server gives whole files only (it ignores Range)")
            if start
            else None
        )
    if status in (404, 410):
        return NotThere(f"{shown} is not there (the server says {status})")
    if status == 416:
        return NoByteRanges(f"{shown}: the server has no bytes from {start}")
    if status in _TRANSIENT:
        wait = answer.headers.get("Retry-After", "")
        pause = float(wait) if re.fullmatch(r"[0-9]{1,6}", wait) else None
        return TransientError(f"{shown}: the server says {status}", pause)
    remedy = "it wants a permission that is not sent" if status in (401, 403) else "check the URL"
    kind = Forbidden if status == 403 else RemoteError
    return kind(f"{shown}: the server says {status}; {remedy}")


def _short(error: Exception) -> str:
    """Return what went wrong, of bounded length: part of it comes from the server."""
    first = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    text = _CONNECTION.sub("", " ".join(first.split()))
    return text if len(text) <= 200 else f"{text[:200]}..."
