"""HTTP server of the search page (uvicorn), by default on 127.0.0.1."""

import asyncio
import logging
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self

import uvicorn

from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.files import OutputError
from pipeline.store.progress import QUIET, Monitor
from pipeline.studies.embedding_map.plane import Projection
from pipeline.web.serve.app import make_app
from pipeline.web.serve.hosts import Hosts
from pipeline.web.serve.region_service import RegionService
from pipeline.web.serve.service import Describe, SearchService

if TYPE_CHECKING:
    from pipeline.regions.localization.region_searcher import RegionSearcher

LOCAL = "127.0.0.1"

_BACKLOG = 64
_SECONDS_KEPT = 75  # idle connections; clients drop theirs after a few, on a busy machine later
_SECONDS_TO_END = 2  # seconds for pending responses when the server stops


class Server:
    """Server of one experiment."""

    def __init__(
        self,
        searcher: "Searcher | RegionSearcher",
        *,
        host: str = LOCAL,
        port: int = 8765,
        top: int = 12,
        describe: Describe | None = None,
        projection: Projection = "pca",
        monitor: Monitor = QUIET,
    ) -> None:
        """Listen on a port and load the models; connections wait until `run` is called."""
        # The port first: loading models takes seconds, and browsers may connect meanwhile.
        self._monitor, self._socket = monitor, _listen(host, port)
        try:
            self.service: SearchService | RegionService
            if isinstance(searcher, Searcher):
                self.service = SearchService(
                    searcher, top=top, describe=describe, projection=projection, monitor=monitor
                )
            else:
                self.service = RegionService(searcher, top=top)
        except BaseException:
            self._socket.close()
            raise
        bound, port = self._socket.getsockname()[:2]
        address = ip_address(bound)
        name = socket.gethostname() if address.is_unspecified else host
        self.url: str = f"http://{_in_url(name)}:{port}/"
        if not address.is_loopback:
            monitor.log(
                f"warning: anyone who can reach {self.url} can search this dataset, see its images "
                "and upload files; there is no password and no encryption. Prefer an SSH tunnel "
                f"(ssh -L {port}:{LOCAL}:{port} HOST) to a server at {LOCAL}"
            )
        app = make_app(self.service, hosts=Hosts.of(address, host, port), log=monitor.log)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None,
                access_log=False, server_header=False, proxy_headers=False, backlog=_BACKLOG,
                timeout_graceful_shutdown=_SECONDS_TO_END, timeout_keep_alive=_SECONDS_KEPT,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def run(self) -> None:
        """Serve until `stop` is called from another thread, or the process is interrupted."""
        logger, handler = logging.getLogger("uvicorn.error"), _Lines(self._monitor.log)
        logger.addHandler(handler)
        try:
            self._server.run([self._socket])
        finally:
            logger.removeHandler(handler)

    def stop(self) -> None:
        """Make `run` return soon."""
        self._server.should_exit = True


class _Lines(logging.Handler):
    """Passes warnings and errors of uvicorn to a function, line by line."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        # A request that is cancelled because the server stops is not an error.
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return
        for line in self.format(record).splitlines():
            self._log(line)


def _listen(host: str, port: int) -> socket.socket:
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OutputError(
            f"port {port} of {host} is not available ({error.strerror}); choose another one with "
            "`port=...`, or 0 for any free port"
        ) from error


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
