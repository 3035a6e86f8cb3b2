"""A headless Chromium, driven by its DevTools protocol over two pipes: no package is needed."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
_SECONDS = 30.0

# The protocol is on the descriptors 3 and 4, which the pipes may have, the other way round.
_START = """
import os, sys
reading, writing = (os.dup(int(number)) for number in sys.argv[1:3])
while min(reading, writing) < 5:
    reading, writing = os.dup(reading), os.dup(writing)
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

Message = dict[str, Any]


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser ended, did not answer in time, or a script of the page failed."""


class Tab:
    """One page.

    Attributes
    ----------
    requests : addresses that it asked for, in order.
    complaints : what it wrote to the console as a warning or an error.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._session: str | None = None
        self._number, self._rest = 0, b""
        self._events: list[Message] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "DOM", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Message:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: Message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writing, data) :]
        number = self._number
        answer = self._until(lambda message: message.get("id") == number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def go(self, url: str) -> None:
        """Open a page and wait until it and its pictures are loaded."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        self.loaded()

    def loaded(self) -> None:
        """Wait until a page that is on its way has been loaded."""
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression in the page has a value that is neither null nor false."""
        end = time.monotonic() + _SECONDS
        while (value := self.run(script)) in (None, False, ""):
            if time.monotonic() > end:
                raise BrowserError(f"not so after {_SECONDS} s: {script}")
            time.sleep(0.05)
        return value

    def choose(self, selector: str, file: Path) -> None:
        """Choose a file in a file field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)

    def click(self, selector: str) -> None:
        """Click an element."""
        self.run(f"document.querySelector({selector!r}).click()")

    def type(self, selector: str, text: str) -> None:
        """Put text into a field as a keyboard does."""
        self.run(f"document.querySelector({selector!r}).select()")
        self.call("Input.insertText", text=text)

    def _until(self, wanted: Callable[[Message], bool]) -> Message:
        """Return the first message that is wanted; events that came before stay to be found."""
        for at, message in enumerate(self._events):
            if wanted(message):
                del self._events[: at + 1]
                return message
        while True:
            message = self._read()
            if wanted(message):
                return message
            if "method" in message:
                self._events.append(message)

    def _read(self) -> Message:
        while b"\0" not in self._rest:
            if not select.select([self._reading], [], [], _SECONDS)[0]:
                raise BrowserError(f"the browser said nothing for {_SECONDS} s")
            data = os.read(self._reading, 1 << 16)
            if not data:
                raise BrowserError("the browser ended")
            self._rest += data
        text, self._rest = self._rest.split(b"\0", 1)
        message: Message = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: Message) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


@contextmanager
def open_tab(browser: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with a fresh profile, and end it."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [
            sys.executable, "-c", _START, str(theirs_in), str(theirs_out),
            browser, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            f"--user-data-dir={profile}", "about:blank",
        ],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Tab(ours_in, ours_out)
    finally:
        process.terminate()
        try:
            process.wait(_SECONDS)
        finally:
            process.kill()
        os.close(ours_in)
        os.close(ours_out)
