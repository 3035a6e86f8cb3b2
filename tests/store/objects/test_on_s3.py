"""Remote folders on a server of S3, in this process and in one that it starts."""

import subprocess
import sys

import fsspec
import pytest

from pipeline.store.objects.locate import open_remote, open_writable
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError

_READ = """
import sys
from pipeline.store.objects.locate import open_remote

sys.stdout.buffer.write(b"".join(open_remote(sys.argv[1]).read_spans("a.bin", [(2, 4), (0, 2)])))
"""


def test_what_is_sent_is_read_in_another_process(
    s3: str, s3_requests: list[tuple[str, str]]
) -> None:
    url = f"{s3}/sent"
    open_writable(url).send("a.bin", [b"ab", b"cd"])
    assert open_remote(url).size("a.bin") == 4
    s3_requests.clear()
    child = subprocess.run([sys.executable, "-c", _READ, url], capture_output=True, check=True)
    assert child.stdout == b"cdab"
    assert {("GET", "/tests/sent/a.bin")} == {(verb, path) for verb, path in s3_requests}


def test_missing_credentials_are_no_reason_to_wait(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    files = type(fsspec.filesystem("s3"))(skip_instance_cache=True)
    with pytest.raises(RemoteError, match="check the URL, permissions and credentials") as raised:
        Remote(files, "tests/none", "s3://tests/none").size("a.bin")
    assert raised.value.cause == ""
