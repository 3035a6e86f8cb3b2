"""A client of the server in tests, and the page as its reader sees it."""

import http.client
import socket
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from urllib.parse import parse_qs, urlencode, urlsplit

from PIL import Image

from pipeline.search.searcher import Sources
from pipeline.search.serve.server import Server

STRANGE = 'folder/ä & "b" <i> %2e + #1'
OUTSIDE, HUGE = "outside", "huge"
TOP = 4


@dataclass(frozen=True)
class Got:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def page(self) -> "Page":
        """The body as HTML."""
        assert self.headers["Content-Type"] == "text/html; charset=utf-8"
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
            (one,) = parse_qs(urlsplit(values["href"]).query)["image"]
            self.hits.append(one)

    def handle_data(self, data: str) -> None:
        self.shown += data
        if self._within and self._within[-1] == "fault":
            self.fault += data.strip()


class Site:
    """Asks a server, each time by a connection of its own."""

    def __init__(self, server: Server, sources: Sources) -> None:
        self.server, self.sources = server, sources
        self.host, self.port = str(server.server_address[0]), int(server.server_address[1])

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Got:
        """Send a request; underscores in the names of headers are hyphens."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Got(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str = "/", **fields: str) -> Got:
        """Get a page."""
        return self.ask("GET", path + (f"?{urlencode(fields)}" if fields else ""))

    def upload(self, body: bytes, **fields: str) -> Got:
        """Upload a file as the page's script does."""
        origin = self.server.url.rstrip("/")
        return self.ask("POST", f"/upload?{urlencode(fields)}", body, Origin=origin)

    def raw(self, data: bytes, wait: bool = False) -> Got:
        """Send bytes as they are, then, unless told to wait, the end of all sending."""
        with socket.create_connection((self.host, self.port), timeout=30) as connection:
            connection.sendall(data)
            if not wait:
                connection.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return Got(response.status, dict(response.getheaders()), response.read())


def png(width: int, height: int, mode: str = "RGB") -> bytes:
    """Return an image file of one colour."""
    stream = BytesIO()
    Image.new(mode, (width, height)).save(stream, format="PNG")
    return stream.getvalue()
