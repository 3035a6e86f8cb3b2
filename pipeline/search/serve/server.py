"""The application on a port of this machine: 127.0.0.1 only, by uvicorn."""

import logging
import socket
from collections.abc import Callable
from typing import Self

import uvicorn

from pipeline.errors import PipelineError
from pipeline.search.serve.answering import Answering
from pipeline.search.serve.app import make_app

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
    url : of the page.
    """

    def __init__(self, answering: Answering, port: int, log: Callable[[str], None]) -> None:
        """Bind a port; connections wait until `run` answers them.

        Parameters
        ----------
        port : 0 for any that is free.
        log : is called with one line for each request that is refused, and for each line of the
            traceback of a fault of this program.

        Raises
        ------
        ServeError
            The port cannot be had.
        """
        try:
            self._socket = socket.create_server((ADDRESS, port), backlog=_BACKLOG)
        except OSError as error:
            raise ServeError(
                f"port {port} of {ADDRESS} cannot be had ({error.strerror}); give another one with "
                "--port, or 0 for any that is free"
            ) from error
        self._log = log
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{ADDRESS}:{self.port}/"
        app = make_app(answering, hosts=_hosts(self.port), log=log)
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
        logger, handler = logging.getLogger("uvicorn.error"), _Lines(self._log)
        logger.addHandler(handler)
        try:
            self._server.run([self._socket])
        finally:
            logger.removeHandler(handler)

    def stop(self) -> None:
        """End `run` soon."""
        self._server.should_exit = True


class _Lines(logging.Handler):
    """Gives the warnings and errors of uvicorn to a function, line by line."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self._log(line)


def _hosts(port: int) -> set[str]:
    """Return what a request to a port may call this machine."""
    names = (ADDRESS, "localhost")
    # Browsers leave out port 80.
    return {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
