"""The page over HTTP: on this machine only, for its own pages only, no file by its path.

A request is refused unless its Host is this server's own (a foreign page could else make its
name point here) and, where it sends something, its Origin too. Bodies have a stated length,
which is limited before they are read.
"""

import re
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qsl

from pipeline.errors import PipelineError
from pipeline.images.decode import UnusableImage
from pipeline.search.searcher import Tell
from pipeline.search.serve.answering import MAX_CHARACTERS, Answering, Query
from pipeline.search.serve.pages import MAX_BODY, Pages
from pipeline.search.serve.pictures import Pictures
from pipeline.shards.format import MISSING, REFUSED, STATUS_NAMES, UNREADABLE

ADDRESS = "127.0.0.1"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' blob: data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every response."""

_STATUS_OF = {
    MISSING: HTTPStatus.NOT_FOUND,
    UNREADABLE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    REFUSED: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}
_HTML = "text/html; charset=utf-8"
_SECONDS, _SECONDS_OF_DRAINING = 20.0, 2.0  # that a client may be silent
_MAX_FIELDS = 16
_BLOCK = 1 << 16


class ServeError(PipelineError):
    """The page cannot be served there."""


class _Refused(Exception):
    """A request that is not answered, with its status and one paragraph."""

    def __init__(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


class Server(ThreadingTCPServer):
    """Serves one experiment on 127.0.0.1, a thread a request.

    Attributes
    ----------
    answering, pages, pictures : what answers, as data, as HTML and as JPEG.
    tell : is told of requests that were refused, and of faults of this program.
    hosts : names that a request may ask for.
    url : of the page.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answering: Answering, port: int, tell: Tell) -> None:
        """Bind a port; `serve_forever` answers.

        Parameters
        ----------
        port : 0 for any that is free.

        Raises
        ------
        ServeError
            The port cannot be had.
        """
        self.answering, self.pages, self.tell = answering, Pages(answering), tell
        self.pictures = Pictures(answering.manifest, answering.image_ids)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise ServeError(
                f"port {port} of {ADDRESS} cannot be had ({error.strerror}); give another one with "
                "--port, or 0 for any that is free"
            ) from error
        port = self.server_address[1]
        self.hosts = {f"{name}:{port}" for name in (ADDRESS, "localhost")}
        if port == 80:  # which browsers leave out
            self.hosts |= {ADDRESS, "localhost"}
        self.url = f"http://{ADDRESS}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away; all else is a fault of this program."""
        if not isinstance(sys.exception(), ConnectionError):
            self.tell_fault()

    def tell_fault(self) -> None:
        """Tell the exception that is being handled, line by line."""
        for line in traceback.format_exc().splitlines():
            self.tell(line)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SECONDS
    _unread = False

    def _answer(self) -> None:
        """Answer any request: by its path and method, or with the status of what is wrong."""
        self._unread = self.command not in ("GET", "HEAD")
        path, _, query = self.path.partition("?")
        fault: Callable[[str], _Content] = _plain
        try:
            self._require_own()
            if path not in _ROUTES:
                raise _Refused(HTTPStatus.NOT_FOUND, "There is nothing here.")
            methods, answer = _ROUTES[path]
            if self.command not in methods:
                allowed = {"Allow": ", ".join(methods)}
                text = f"{path} takes {allowed['Allow']} only."
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, text, allowed)
            fields = _fields(query)
            pages = {"/": self._fault_page(fields), "/upload": self._fault_below}
            fault = pages.get(path, _plain)
            self._send(HTTPStatus.OK, answer(self, fields))
        except (ConnectionError, TimeoutError):
            raise
        except _Refused as refused:
            self._refuse(refused.status, fault(str(refused)), str(refused), refused.headers)
        except UnusableImage as unusable:
            what = "The upload" if self.command == "POST" else "The picture"
            text = f"{what} is {STATUS_NAMES[unusable.status]}: {unusable}."
            self._refuse(_STATUS_OF[unusable.status], fault(text), text)
        except PipelineError as error:
            text = f"{str(error)[:1].upper()}{str(error)[1:]}."
            self._refuse(HTTPStatus.BAD_REQUEST, fault(text), text)
        except Exception:
            text = "The server failed at this request; its terminal says how."
            self.server.tell_fault()
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, fault(text), text)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

    def _page(self, fields: Mapping[str, str]) -> "_Content":
        pages = self.server.pages
        if not fields:
            return _HTML, pages.page()
        query = Query.of_fields(fields)
        return _HTML, pages.page(query, self.server.answering.answer(query))

    def _image(self, fields: Mapping[str, str]) -> "_Content":
        return "image/jpeg", self.server.pictures.small_copy(fields.get("id", ""))

    def _upload(self, fields: Mapping[str, str]) -> "_Content":
        query = Query.of_fields(fields, self._body())
        return _HTML, self.server.pages.results(self.server.answering.answer(query))

    def _style(self, fields: Mapping[str, str]) -> "_Content":
        return "text/css; charset=utf-8", self.server.pages.style

    def _script(self, fields: Mapping[str, str]) -> "_Content":
        return "text/javascript; charset=utf-8", self.server.pages.script

    def _fault_page(self, fields: Mapping[str, str]) -> Callable[[str], "_Content"]:
        query = Query(sentence=fields.get("q", "")[:MAX_CHARACTERS])
        return lambda text: (_HTML, self.server.pages.page(query, fault=text))

    def _fault_below(self, text: str) -> "_Content":
        return _HTML, self.server.pages.results(None, text)

    def _require_own(self) -> None:
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"This server answers at {self.server.url} and by no other name.",
            )
        # Browsers send it with every POST.
        if not {f"http://{host}" for host in self.server.hosts}.issuperset(origins):
            raise _Refused(HTTPStatus.FORBIDDEN, "This server answers its own pages only.")

    def _body(self) -> bytes:
        """Return the whole body of a request; its length is checked before it is read."""
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1:
            raise _Refused(
                HTTPStatus.LENGTH_REQUIRED, "An upload states its length once (Content-Length)."
            )
        if not re.fullmatch("[0-9]{1,18}", lengths[0]):
            raise _Refused(HTTPStatus.BAD_REQUEST, "The stated length is no number of bytes.")
        length = int(lengths[0])
        if length == 0:
            raise _Refused(HTTPStatus.BAD_REQUEST, "The upload is empty.")
        if length > MAX_BODY:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The upload has {length} bytes; the limit is {MAX_BODY}.",
            )
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise _Refused(
                HTTPStatus.REQUEST_TIMEOUT, f"The upload stood still for {_SECONDS:g} seconds."
            ) from None
        self._unread = False
        if len(body) < length:
            raise _Refused(
                HTTPStatus.BAD_REQUEST, f"The upload ended after {len(body)} of {length} bytes."
            )
        return body

    def _refuse(
        self,
        status: HTTPStatus,
        content: "_Content",
        reason: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.server.tell(f"{self.command} {self.path[:200]}: {status.value}, {reason}")
        self._send(status, content, headers)

    def _send(
        self, status: HTTPStatus, content: "_Content", headers: Mapping[str, str] | None = None
    ) -> None:
        kind, text = content
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"}
        for name, value in {**HEADERS, **own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def finish(self) -> None:
        """End the answer, and take what is still coming: a client that sends does not listen."""
        super().finish()
        if self._unread:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
                end = time.monotonic() + _SECONDS_OF_DRAINING
                while self.connection.recv(_BLOCK) and time.monotonic() < end:
                    self.connection.settimeout(_SECONDS_OF_DRAINING)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no HTTP that the parent understands."""
        status, self._unread = HTTPStatus(code), True
        self._send(status, _plain(f"{message or status.phrase}."))

    def version_string(self) -> str:
        """Return what the server says it is, without versions."""
        return "pipeline"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what is refused has been told."""


_Content = tuple[str, str | bytes]
"""Media type and body."""


def _plain(text: str) -> _Content:
    return "text/plain; charset=utf-8", f"{text}\n"


def _fields(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise _Refused(HTTPStatus.BAD_REQUEST, "The address has fields that are no text.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Refused(HTTPStatus.BAD_REQUEST, "The address has a field twice.")
    return fields


_ROUTES: dict[str, tuple[tuple[str, ...], Callable[[_Handler, Mapping[str, str]], _Content]]] = {
    "/": (("GET", "HEAD"), _Handler._page),
    "/image": (("GET", "HEAD"), _Handler._image),
    "/upload": (("POST",), _Handler._upload),
    "/style.css": (("GET", "HEAD"), _Handler._style),
    "/script.js": (("GET", "HEAD"), _Handler._script),
}
