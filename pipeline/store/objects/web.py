"""HTTP(S) through fsspec, with the checks that an untrusted server requires.

fsspec reads responses of any length, does not notice a server that ignores `Range`, and follows
redirects from https to http. An aiohttp middleware therefore checks the headers of each response,
including redirects, before the body is read: a range response is not longer than its headers
state, and whole files are read block by block by a caller that stops at their size.
"""

import re
import reprlib
from contextvars import ContextVar
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yarl
from fsspec.implementations.http import HTTPFileSystem

from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError
from pipeline.store.wording import without_secrets

CONNECT_SECONDS, READ_SECONDS = 15.0, 60.0
CONNECTIONS = 8
MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_REQUESTED = re.compile(r"bytes=(\d+)-(\d*)")
_RETURNED = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "caption-feature-pipeline"}

# fsspec runs each request in a task of its own, in which aiohttp also follows its redirects.
_redirects: ContextVar[int] = ContextVar("redirects", default=0)


def open_web(url: str) -> Remote:
    """Open a folder of a server; a query of its URL, such as a signature, goes with every file."""
    parts = _parts_of(url)
    if parts is None or not parts.hostname or "@" in parts.netloc:
        raise RemoteError(
            f"{without_secrets(url)}: expected a URL with a valid host and port, and without user "
            "and password, which are not sent over HTTP; mount the folder, or use a protocol with "
            "its own credentials, such as s3:// or sftp://"
        )
    # aiohttp's own `trust_env` would also read ~/.netrc.
    proxy = None if proxy_bypass(parts.hostname) else getproxies().get(parts.scheme)

    async def client(**_: object) -> aiohttp.ClientSession:
        # No cookies and no ~/.netrc: the server receives only the URL.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit_per_host=CONNECTIONS),
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=proxy,
            auto_decompress=False,
            requote_redirect_url=False,
            middlewares=(_checked,),
        )

    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    query = f"?{quote(parts.query, safe='%:@!$&()*+,;=~/?')}" if parts.query else ""
    root = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    files = HTTPFileSystem(get_client=client, encoded=True, skip_instance_cache=True)
    shown = without_secrets(urlunsplit(parts._replace(fragment="")))
    return Remote(files, root, shown, query)


def _parts_of(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is invalid, for example half an IPv6 address."""
    try:
        parts = urlsplit(url)
        parts = parts._replace(netloc=parts.netloc.encode("idna").decode())
        return parts if parts.port is None or parts.port > 0 else None
    except ValueError:
        return None


async def _checked(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Return the response to a request if its headers allow reading or following it."""
    try:
        answer = await handler(request)
    except aiohttp.ClientSSLError as error:
        raise RemoteError(
            f"no secure connection ({str(error)[:200]}); the server's certificate must be trusted "
            "by this system (SSL_CERT_FILE names others)"
        ) from error
    except aiohttp.ClientResponseError as error:
        raise RemoteError(
            f"the server does not speak HTTP ({error.message[:200]})", "transient"
        ) from error
    try:
        if answer.status in _REDIRECTS:
            _require_redirect(request.url, answer.headers.get("Location", ""))
        else:
            _require_body(answer, request.headers.get("Range", ""))
    except RemoteError:
        answer.close()
        raise
    return answer


def _require_redirect(url: yarl.URL, location: str) -> None:
    _redirects.set(_redirects.get() + 1)
    if _redirects.get() > MAX_REDIRECTS:
        raise RemoteError(
            f"more than {MAX_REDIRECTS} redirects; the server redirects in circles, or the URL is "
            "not that of the files themselves"
        )
    try:
        target = url.join(yarl.URL(location, encoded=True))
        valid = bool(location) and target.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise RemoteError(
            f"the server redirects to {reprlib.repr(location)}, which is not a URL; contact its "
            "operator, or use the right URL"
        )
    if target.scheme not in ("https", url.scheme):
        raise RemoteError(
            f"the server redirects from {url.scheme} to {target.scheme}:, which is not followed; "
            "contact its operator, or use the right URL"
        )


def _require_body(answer: aiohttp.ClientResponse, requested: str) -> None:
    """Raise a RemoteError unless a response has exactly the requested bytes."""
    # fsspec would return a longer body, or one from another offset, as the requested range.
    span = _REQUESTED.fullmatch(requested)
    start = int(span[1]) if span else 0
    most = int(span[2]) + 1 - start if span and span[2] else None
    status = answer.status
    if status == 206:
        returned = _RETURNED.fullmatch(answer.headers.get("Content-Range", ""))
        size = answer.content_length
        if returned is None or int(returned[1]) != start:
            raise RemoteError(
                f"the server returned other bytes than those from {start}", "no ranges"
            )
        if most is not None and (size is None or size > most):
            raise RemoteError(
                f"the server returned {size} bytes, {most} were requested", "no ranges"
            )
    elif status == 200:
        if span:
            raise RemoteError("the server returns whole files only (it ignores Range)", "no ranges")
    elif status in (404, 410):
        raise RemoteError(f"HTTP {status}, the file does not exist", "missing")
    elif status == 416:
        raise RemoteError(f"the server has no bytes from {start}", "no ranges")
    elif status in _TRANSIENT:
        wait = answer.headers.get("Retry-After", "")
        pause = float(wait) if re.fullmatch(r"[0-9]{1,6}", wait) else None
        raise RemoteError(f"HTTP {status}", "transient", pause)
    elif status in (401, 403):
        raise RemoteError(
            f"HTTP {status}; it requires credentials that were not sent",
            "forbidden" if status == 403 else "",
        )
    else:
        raise RemoteError(f"HTTP {status}; check the URL")
