"""A client of the server in tests, and the page as its reader sees it."""

import http.client
import socket
import struct
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from PIL import Image

from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.progress import QUIET, Monitor
from pipeline.web.serve.service import SearchService

STRANGE = 'folder/ä & "b" <i> %2e + #1'
OUTSIDE, HUGE = "outside", "huge"
TOP = 4


@dataclass(frozen=True)
class Got:
    """A response; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def page(self) -> "Page":
        """The body as HTML."""
        assert self.headers["content-type"] == "text/html; charset=utf-8"
        return Page(self.body.decode())


class Page(HTMLParser):
    """Tags with their attributes, the text that is shown, and the ids of the hits in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.shown, self.fault, self.hits = "", "", list[str]()
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append((tag, values))
        self._within.append(values.get("class", ""))
        if tag == "a" and values["href"].startswith("/?image="):
            fields = parse_qs(urlsplit(values["href"]).query)
            if "page" not in fields:
                self.hits += fields["image"]

    def handle_data(self, data: str) -> None:
        self.shown += data
        if self._within and self._within[-1] == "fault":
            self.fault += data.strip()


@dataclass(frozen=True)
class Sources:
    """Where the parts of a searcher lie."""

    embeddings: Path
    head: Path
    dataset: Path
    encoder: Path

    def searcher(self, weights: str | None = None, monitor: Monitor = QUIET) -> Searcher:
        """Open them."""
        return Searcher(
            self.embeddings, dataset=self.dataset, head=self.head, encoder=self.encoder,
            weights=weights, monitor=monitor,
        )  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A server that runs, asked each time by a connection of its own.

    Attributes
    ----------
    url : of the page.
    sources, service : of what is served.
    log : the lines that the server has logged.
    """

    url: str
    sources: Sources
    service: SearchService
    log: list[str]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    @property
    def head(self) -> str:
        """The first lines of an upload."""
        return f"POST /upload HTTP/1.1\r\nHost: {':'.join(map(str, self.address))}\r\n"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Got:
        """Send a request; underscores in the names of headers are hyphens."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Got(response.status, _lower(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str = "/", **fields: str) -> Got:
        """Get a page."""
        return self.ask("GET", path + (f"?{urlencode(fields)}" if fields else ""))

    def upload(self, file: bytes, /, **fields: str) -> Got:
        """Upload a file as the page's script does."""
        return self.send(form({"file": file, **fields}), Origin=self.url.rstrip("/"))

    def send(self, body: bytes, **headers: str) -> Got:
        """Send the body of a form."""
        return self.ask("POST", "/upload", body, **{"Content_Type": FORM, **headers})

    def wait_for(self, line: str) -> None:
        """Wait until a line has been logged, which may come after the answer."""
        end = time.monotonic() + 30
        while line not in self.log:
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def raw(self, data: bytes) -> Got:
        """Send bytes as they are."""
        with socket.create_connection(self.address, timeout=30) as connection:
            connection.sendall(data)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return Got(response.status, _lower(response.getheaders()), response.read())


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


KINDS = ("<i>bright</i>", "dark")

FORM = "multipart/form-data; boundary=frontier"


def form(parts: Mapping[str, str | bytes] | Sequence[tuple[str, str | bytes]]) -> bytes:
    """Return the body of a form of the type `FORM`; bytes are files."""
    lines = []
    for name, value in parts.items() if isinstance(parts, Mapping) else parts:
        disposition = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, bytes):
            disposition += '; filename="a picture.png"\r\nContent-Type: image/png'
        data = value if isinstance(value, bytes) else value.encode()
        lines += [b"--frontier", disposition.encode(), b"", data]
    return b"\r\n".join([*lines, b"--frontier--", b""])


def png(width: int, height: int, mode: str = "RGB") -> bytes:
    """Return an image file of one colour."""
    stream = BytesIO()
    Image.new(mode, (width, height)).save(stream, format="PNG")
    return stream.getvalue()


def with_size(data: bytes, width: int, height: int) -> bytes:
    """Return a PNG file whose header states another size than its pixels have."""
    header = data[12:16] + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]
