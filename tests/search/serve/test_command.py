"""`pipeline serve` as its user calls it: the address on stdout, and Ctrl-C for its end."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from tests.project import PROJECT
from tests.search.serve.factories import Sources

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
            with urlopen(f"{url}?q=a+red+dog") as answer:
                assert answer.read().count(b'<li class="hit">') == 3
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "")
    settings, last = err.splitlines()
    assert "address=127.0.0.1 port=0 top=3" in settings
    assert last == "ended"
