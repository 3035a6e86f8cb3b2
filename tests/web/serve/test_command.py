"""`pipeline serve` as its user calls it: the address on stdout, and Ctrl-C for its end."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from tests.project import PROJECT
from tests.web.serve.factories import FORM, Sources

NAME = "kiros2014-linear"


def _command(sources: Sources, *more: str) -> list[str]:
    paths = {
        "embeddings": sources.embeddings, "head": sources.head, "dataset": sources.dataset,
        "encoder": sources.encoder,
    }  # fmt: skip
    options = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    call = "from stages.cli import main; main()"
    return [sys.executable, "-c", call, "serve", "--experiment", NAME, *options, *more]


def test_it_serves_until_it_is_interrupted(sources: Sources, tmp_path: Path) -> None:
    shutil.copy(PROJECT / "params.yaml", tmp_path)
    with subprocess.Popen(
        _command(sources, "--port", "0", "--top", "3"), cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), process.communicate()
            # Neither a connection that is kept open nor an upload that stands still is waited for.
            with (
                closing(HTTPConnection(urlsplit(url).netloc, timeout=30)) as kept,
                closing(HTTPConnection(urlsplit(url).netloc, timeout=30)) as still,
            ):
                kept.request("GET", "/?q=a+red+dog")
                assert kept.getresponse().read().count(b'<li class="hit">') == 3
                headers = {"Content-Type": FORM, "Content-Length": "99", "Expect": "100-continue"}
                still.request("POST", "/upload", headers=headers)
                assert still.sock.recv(99).startswith(b"HTTP/1.1 100 ")
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "")
    settings, cut_off, last = err.splitlines()
    assert all(found in settings for found in ("port=0", "top=3"))
    assert cut_off.startswith("Cancel 1 running task(s)")
    assert last == "stopped"
