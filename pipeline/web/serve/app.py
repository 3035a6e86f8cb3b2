"""ASGI application of the search page, with the checks of requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.images.decoding.decode import UnusableImage
from pipeline.store.errors import PipelineError
from pipeline.store.shards.format import MISSING, REFUSED, STATUS_NAMES, UNREADABLE
from pipeline.web.serve.hosts import Hosts
from pipeline.web.serve.region_service import RegionService
from pipeline.web.serve.result_pages import MAX_BODY, Pages
from pipeline.web.serve.served_images import Pictures
from pipeline.web.serve.service import MAX_CHARACTERS, MOST_LISTS, Query, SearchService

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' blob: data:; media-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response."""

SECONDS_OF_SILENCE = 20.0
"""Timeout of an upload that sends no data, in seconds."""

_MAX_FIELDS = 7 + MOST_LISTS
_STATUS_OF = {
    MISSING: HTTPStatus.NOT_FOUND,
    UNREADABLE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    REFUSED: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


def make_app(
    service: SearchService | RegionService, *, hosts: Hosts, log: Callable[[str], None]
) -> ASGIApp:
    """Return the application that serves one experiment."""
    site = _Site(service, log)
    app = Starlette(
        routes=[
            Route("/", site.page),
            Route("/search.json", site.search),
            Route("/image", site.image),
            Route("/map", site.map),
            Route("/clip", site.clip),
            Route("/upload", site.upload, methods=["POST"]),
            Route("/style.css", site.constant("serve.css", "text/css")),
            Route("/script.js", site.constant("serve.js", "text/javascript")),
            Route("/map.js", site.constant("map.js", "text/javascript")),
        ],
        middleware=[Middleware(_OwnPagesOnly, hosts=hosts, refuse=site.refuse_plainly)],
        exception_handlers={
            HTTPStatus.NOT_FOUND: site.no_such_address,
            HTTPStatus.METHOD_NOT_ALLOWED: site.wrong_method,
            HTTPException: site.refuse,
            PipelineError: site.refuse,
            UnusableImage: site.refuse,
            Exception: site.refuse,
        },
    )
    app.router.redirect_slashes = False
    return app


class _Site:
    """Endpoints and error responses; all endpoints except uploads run in threads."""

    def __init__(self, service: SearchService | RegionService, log: Callable[[str], None]) -> None:
        self._service, self._log = service, log
        self._pages = Pages(service)
        self._pictures = Pictures(service.manifest, service.image_ids)
        self._clips = self._pages.clips

    def page(self, request: Request) -> Response:
        fields = _query_fields(request)
        if not fields:
            return _html(self._pages.page())
        query = Query.of_fields(fields)
        return _html(self._pages.page(query, self._service.answer(query)))

    def search(self, request: Request) -> Response:
        return _json(self._service.answer(Query.of_fields(_query_fields(request))).to_json())

    def image(self, request: Request) -> Response:
        copy = self._pictures.small_copy(_query_fields(request).get("id", ""))
        return Response(copy, media_type="image/jpeg", headers=HEADERS)

    def clip(self, request: Request) -> Response:
        """Return the file of a clip; range requests, which players send, are answered."""
        path, kind = self._clips.file(_query_fields(request).get("id", ""))
        return FileResponse(path, media_type=kind, headers=HEADERS)

    async def upload(self, request: Request) -> Response:
        fields, image = await _form(request)
        answer = await run_in_threadpool(self._service.answer, Query.of_fields(fields, image))
        return _html(self._pages.results(answer))

    def map(self, request: Request) -> Response:
        return _html(self._pages.map())

    def constant(self, template: str, media_type: str) -> Callable[[Request], Response]:
        """Return the endpoint of a style or script."""
        text = self._pages.render(template)
        return lambda request: Response(text, media_type=media_type, headers=HEADERS)

    def refuse(self, request: Request, error: Exception) -> Response:
        """Return the page, or the part below its forms, with a paragraph about the error."""
        path, (status, text) = request.scope["path"], _reason(request, error)
        if path not in ("/", "/search.json", "/upload"):
            return self.refuse_plainly(request, status, text)
        self._log_refusal(request, status, text)
        if path == "/search.json":
            return _json({"error": text}, status)
        if path == "/upload":
            return _html(self._pages.results(None, text), status)
        query = Query(sentence=request.query_params.get("q", "")[:MAX_CHARACTERS])
        return _html(self._pages.page(query, reason=text), status)

    def refuse_plainly(
        self, request: Request, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the error as one line of text."""
        self._log_refusal(request, status, text)
        return PlainTextResponse(f"{text}\n", status, {**HEADERS, **(headers or {})})

    def no_such_address(self, request: Request, error: Exception) -> Response:
        return self.refuse_plainly(request, HTTPStatus.NOT_FOUND, "There is no such address.")

    def wrong_method(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        assert error.headers is not None
        text = f"{request.scope['path']} accepts {error.headers['Allow']} only."
        return self.refuse_plainly(request, error.status_code, text, error.headers)

    def _log_refusal(self, request: Request, status: int, text: str) -> None:
        query = request.scope["query_string"].decode("latin-1")
        address = request.scope["path"] + (f"?{query}" if query else "")
        self._log(f"{request.method} {address[:200]}: {int(status)}, {text}")


# Otherwise another site could make its name resolve to this machine (DNS rebinding), and its pages
# could read the answers.
class _OwnPagesOnly:
    """Rejects requests to other host names and requests from pages of other sites."""

    def __init__(
        self, app: ASGIApp, hosts: Hosts, refuse: Callable[[Request, int, str], Response]
    ) -> None:
        self._app, self._hosts, self._refuse = app, hosts, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            text = f"This server answers at {' and '.join(sorted(self._hosts.names))} only."
        elif not all(self._is_own(origin) for origin in origins):  # browsers send it with POST
            text = "This server answers its own pages only."
        else:
            await self._app(scope, receive, send)
            return
        response = self._refuse(Request(scope), HTTPStatus.FORBIDDEN, text)
        await response(scope, receive, send)

    def _is_own(self, origin: str) -> bool:
        return origin.startswith("http://") and origin.removeprefix("http://") in self._hosts


def _html(text: str, status: int = HTTPStatus.OK) -> Response:
    return HTMLResponse(text.encode("utf-8", "replace"), status, HEADERS)


def _json(value: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value), status, HEADERS, "application/json")


def _reason(request: Request, error: Exception) -> tuple[int, str]:
    """Return the status of an error, and one paragraph about it."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, UnusableImage):
        what = "The upload" if request.method == "POST" else "The image"
        return _STATUS_OF[error.status], f"{what} is {STATUS_NAMES[error.status]}: {error}."
    if isinstance(error, PipelineError):
        return HTTPStatus.BAD_REQUEST, f"{str(error)[:1].upper()}{str(error)[1:]}."
    text = "The server failed to answer this request; its terminal has the error."
    return HTTPStatus.INTERNAL_SERVER_ERROR, text


def _query_fields(request: Request) -> dict[str, str]:
    """Return the query fields of a URL; raise if one is repeated."""
    query = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise _bad_request("The address has fields that are not valid text.") from None
    return _each_once(pairs, "address")


async def _form(request: Request) -> tuple[dict[str, str], bytes]:
    """Return the text fields of an upload and the bytes of its file, in memory."""
    _require_length(request.headers)  # before any of the body is read
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "An upload is a form (multipart/form-data)."
        )
    parser = MultiPartParser(request.headers, _chunks(request), max_files=1, max_fields=_MAX_FIELDS)
    parser.spool_max_size = MAX_BODY
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise _bad_request(f"The upload is not a complete form: {error.message}") from None
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise _bad_request("The upload has no file.")
        image = await file.read()
    finally:
        await form.close()
    if not image:
        raise _bad_request("The upload is empty.")
    texts = [(name, text) for name, text in form.multi_items() if isinstance(text, str)]
    return _each_once(texts, "form"), image


def _require_length(headers: Headers) -> None:
    """Raise unless the stated length of a body is within the limit."""
    stated = headers.get("content-length")
    if stated is None or "transfer-encoding" in headers:
        raise HTTPException(
            HTTPStatus.LENGTH_REQUIRED, "An upload states its length (Content-Length)."
        )
    if int(stated) > MAX_BODY:
        raise HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The upload has {stated} bytes; the limit is {MAX_BODY}.",
        )


async def _chunks(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the body of a request; raise if it stalls."""
    stream = request.stream()
    try:
        while True:
            async with asyncio.timeout(SECONDS_OF_SILENCE):
                chunk = await anext(stream, b"")
            if not chunk:
                return
            yield chunk
    except TimeoutError:
        raise HTTPException(
            HTTPStatus.REQUEST_TIMEOUT,
            f"The upload sent nothing for {SECONDS_OF_SILENCE:g} seconds.",
        ) from None
    except ClientDisconnect:
        raise _bad_request("The upload ended before its stated length.") from None


def _each_once(pairs: Sequence[tuple[str, str]], where: str) -> dict[str, str]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _bad_request(f"The {where} has a field more than once.")
    return fields


def _bad_request(text: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, text)
