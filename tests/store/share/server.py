"""An HTTP server with ranges of files that misbehaves as tests ask."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Misbehaving(ThreadingHTTPServer):
    """Serves a folder; each fault is a function of a request that may answer it (True)."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.faults: list[Callable[[Request], bool]] = []  # asked in order
        self.served = 0  # bytes of bodies
        self.hold_at: int | None = None  # bytes served at which all answers wait
        self.ranges = True  # whether Range is heeded
        self.asked: list[tuple[str, int]] = []  # file and first byte of all requests
        self.lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that have gone."""


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Misbehaving

    def do_GET(self) -> None:
        """Answer, or have a fault answer."""
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        path = self.server.folder / self.path.partition("?")[0].lstrip("/")
        self.path_of_file = path if path.is_file() else None
        ranged = wanted is not None and self.server.ranges
        self.start = int(wanted[1]) if wanted and ranged else 0
        self.size = path.stat().st_size if path.is_file() else 0
        self.stop = self.size
        if wanted and ranged and wanted[2]:
            self.stop = min(int(wanted[2]) + 1, self.size)
        self.file, self.status = path.name, 206 if ranged else 200
        with self.server.lock:
            self.server.asked.append((path.name, self.start))
        for fault in self.server.faults:
            if fault(self):
                return
        self.answer()

    def answer(self, cut: int | None = None, change: Callable[[bytes], bytes] = bytes) -> bool:
        """Send the bytes that are asked for; `cut`: close the connection after so many."""
        if self.path_of_file is None:
            return self.plain(404, b"")
        with self.path_of_file.open("rb") as stream:
            stream.seek(self.start)
            body = change(stream.read(max(0, self.stop - self.start)))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        if self.status == 206:
            last = self.start + len(body) - 1
            self.send_header("Content-Range", f"bytes {self.start}-{last}/{self.size}")
        self.end_headers()
        self.send(body if cut is None else body[:cut])
        if cut is not None:
            time.sleep(0.1)  # a client may drop what it has not read when the connection breaks
            self.close_connection = True
        return True

    def plain(self, status: int, body: bytes, **headers: str) -> bool:
        """Send something else."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send(body)
        return True

    def send(self, body: bytes) -> None:
        """Write a body in blocks."""
        for first in range(0, len(body), 1 << 14):
            while self.server.hold_at is not None and self.server.served >= self.server.hold_at:
                time.sleep(0.01)
            block = body[first : first + (1 << 14)]
            self.wfile.write(block)
            with self.server.lock:
                self.server.served += len(block)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[Misbehaving]:
    """Serve a folder from a thread."""
    with Misbehaving(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def once(fault: Callable[["Request"], bool]) -> Callable[["Request"], bool]:
    """Return a fault that answers one request and no more."""
    answered: list[bool] = []

    def first(request: "Request") -> bool:
        if answered or not fault(request):
            return False
        answered.append(True)
        return True

    return first
