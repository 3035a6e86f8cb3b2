"""The application on a port of this machine: 127.0.0.1 only, by uvicorn."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Self

import uvicorn

from pipeline.embedding_map.plane import Projection
from pipeline.errors import PipelineError
from pipeline.progress import QUIET, Monitor
from pipeline.search.region_searcher import RegionSearcher
from pipeline.search.searcher import Searcher
from pipeline.search.serve.app import make_app
from pipeline.search.serve.region_service import RegionService
from pipeline.search.serve.service import Describe, SearchService

ADDRESS = "127.0.0.1"

_BACKLOG = 64
_SECONDS_TO_END = 2
"""That an answer on its way has when the server ends."""


class ServeError(PipelineError):
    """The page cannot be served there."""


class Server:
    """Serves one experiment on 127.0.0.1.

    Attributes
    ----------
    service : answers the queries.
    url : of the page.
    """

    def __init__(
        self,
        searcher: Searcher | RegionSearcher,
        *,
        port: int = 8765,
        top: int = 12,
        describe: Describe | None = None,
        projection: Projection = "pca",
        monitor: Monitor = QUIET,
    ) -> None:
        """Take a port and load the models; connections wait until `run` answers them.

        Parameters
        ----------
        searcher : not to be used elsewhere.
        port : 0 for any that is free.
        top : how many hits a query gets, at least 1.
        describe : captions of uploads, with a `Searcher`; None: none.
        projection : how the map of a `Searcher` places images.
        monitor : takes a line for each request that is refused, and the tracebacks of faults of
            this program.

        Raises
        ------
        ServeError
            The port cannot be had.
        SearchError, PipelineError
            See `pipeline.search.serve.service.SearchService`.
        """
        self._monitor, self._socket = monitor, _listen(port)
        try:
            self.service: SearchService | RegionService
            if isinstance(searcher, RegionSearcher):
                self.service = RegionService(searcher, top=top)
            else:
                self.service = SearchService(
                    searcher, top=top, describe=describe, projection=projection, monitor=monitor
                )
        except BaseException:
            self._socket.close()
            raise
        port = self._socket.getsockname()[1]
        self.url: str = f"http://{ADDRESS}:{port}/"
        app = make_app(self.service, hosts=_hosts(port), log=monitor.log)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None,
                access_log=False, server_header=False, proxy_headers=False, backlog=_BACKLOG,
                timeout_graceful_shutdown=_SECONDS_TO_END,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Give the port back."""
        self._socket.close()

    def run(self) -> None:
        """Answer until `stop` is called, from another thread, or the process is interrupted.

        Raises
        ------
        KeyboardInterrupt
            After what was on its way has been answered.
        """
        logger, handler = logging.getLogger("uvicorn.error"), _Lines(self._monitor.log)
        logger.addHandler(handler)
        try:
            self._server.run([self._socket])
        finally:
            logger.removeHandler(handler)

    def stop(self) -> None:
        """End `run` soon."""
        self._server.should_exit = True


class _Lines(logging.Handler):
    """Gives the warnings and errors of uvicorn to a function, line by line.

    A request that is cut off because the server ends is no error.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return
        for line in self.format(record).splitlines():
            self._log(line)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((ADDRESS, port), backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(
            f"port {port} of {ADDRESS} cannot be had ({error.strerror}); give another one with "
            "`port=...`, or 0 for any that is free"
        ) from error


def _hosts(port: int) -> set[str]:
    """Return the hosts, with ports, that a request may name."""
    names = (ADDRESS, "localhost")
    # Browsers leave out port 80.
    return {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
