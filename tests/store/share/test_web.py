"""What goes to a server and what is accepted from it, beyond the files that it serves."""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yarl

from pipeline.store.share.pull import pull
from pipeline.store.share.retry import RemoteError
from pipeline.store.share.web import _require_redirect
from tests.project import Recorder
from tests.store.share.server import Misbehaving, Request, once
from tests.store.share.shared import IDS, SHARDS, pull_command


def test_a_query_goes_with_every_file_and_is_shown_nowhere(
    tmp_path: Path, server: Misbehaving
) -> None:
    """Byte for byte, as signatures need it."""
    query, paths, monitor = "sig=a%2Fb%2Bc/d+e%C3%A9", [], Recorder()

    def fault(request: Request) -> bool:
        paths.append(request.path)
        return request.file == SHARDS[0] and request.plain(503, b"")

    server.faults = [fault]
    with pytest.raises(RemoteError, match="503") as raised:
        pull(f"{server.url}/set?{query}", tmp_path / "x", monitor=monitor)
    assert {path.partition("?")[2] for path in paths} == {query}
    assert not [text for text in [str(raised.value), *monitor.lines] if "sig" in text]


def test_a_server_learns_the_url_and_no_more(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cookies, and no passwords that ~/.netrc has for its host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    headers = []

    def fault(request: Request) -> bool:
        headers.append(dict(request.headers.items()))
        if len(headers) == 1:
            request.plain(302, b"", Location=f"{server.url}/set/index.json", Set_Cookie="a=b")
        return len(headers) == 1

    server.faults = [fault]
    pull(f"{server.url}/set", tmp_path / "x")
    assert len(headers) > 4
    assert {name for sent in headers for name in sent} <= {
        "Host", "Accept", "Accept-Encoding", "User-Agent", "Connection",
    }  # fmt: skip
    assert {sent["Accept-Encoding"] for sent in headers} == {"identity"}


def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    def fault(request: Request) -> bool:
        paths.append(request.path)
        return False

    server.faults = [fault]
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", server.url)
    with pytest.raises(RemoteError) as raised:
        pull("http://example.invalid/set", tmp_path / "x")
    assert raised.value.cause == "missing"
    assert paths == ["http://example.invalid/set/index.json"]


def test_https_is_not_left() -> None:
    _require_redirect(yarl.URL("http://a/x"), "https://b/y")
    _require_redirect(yarl.URL("https://a/x"), "//b/y")
    with pytest.raises(RemoteError, match="from https to http:"):
        _require_redirect(yarl.URL("https://a/x"), "http://a/x")


def _endless(request: Request) -> bool:
    request.send_response(206)
    request.send_header("Content-Range", f"bytes {request.start}-{request.stop - 1}/*")
    request.end_headers()
    with suppress(OSError):
        while True:
            request.send(bytes(1 << 20))
    return True


def _more(request: Request) -> bool:
    request.send_response(206)
    request.send_header("Content-Range", f"bytes {request.start}-{request.stop - 1}/*")
    request.send_header("Content-Length", str(1 << 40))
    request.end_headers()
    return True


def _others(request: Request) -> bool:
    request.start, request.stop = request.start + 1, request.stop + 1
    return request.answer()


def _fewer(request: Request) -> bool:
    return request.answer(change=lambda body: body[:-1])


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (_endless, "None bytes, .* were requested; single rows cannot"),
        (_more, "1099511627776 bytes, "),
        (_others, "other bytes than those from"),
        (_fewer, "the file ended at byte .* 5 attempts in a row"),
        (lambda r: r.plain(416, b""), "no bytes from"),
        (lambda r: r.plain(418, b""), "HTTP 418; check the URL"),
    ],
)
def test_ranges_are_what_was_requested(
    tmp_path: Path, server: Misbehaving, lie: Callable[[Request], bool], message: str
) -> None:
    server.faults = [lambda r: r.file == SHARDS[1] and lie(r)]
    with pytest.raises(RemoteError, match=message):
        pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
    server.faults = []
    pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])


def test_what_the_server_asks_for_is_waited(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within bounds."""
    waits: list[float] = []
    monkeypatch.setattr("pipeline.store.share.retry.sleep", waits.append)
    server.faults = [
        once(lambda r: r.file == SHARDS[0] and r.plain(503, b"", Retry_After="7")),
        once(lambda r: r.file == SHARDS[0] and r.plain(429, b"", Retry_After="86400")),
    ]
    pull(f"{server.url}/set", tmp_path / "x")
    assert [seconds for seconds in waits if seconds > 1] == [7, 60]


@pytest.mark.parametrize("some", [False, True])
def test_ctrl_c_ends_at_once(tmp_path: Path, server: Misbehaving, some: bool) -> None:
    """Also while the server does not send."""
    (tmp_path / "ids.txt").write_text("\n".join(IDS[25:]))
    server.hold_at = 30_000
    process = pull_command(
        [f"{server.url}/set", str(tmp_path / "x")]
        + (["--ids", str(tmp_path / "ids.txt")] if some else []),
        stderr=subprocess.PIPE,
    )
    while server.served < server.hold_at and process.poll() is None:
        time.sleep(0.01)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    assert time.monotonic() - started < 10, "the timeout of reading is 60 s"
    assert process.returncode != 0
    assert "Traceback" not in errors
    assert "nclosed" not in errors
    server.hold_at = None
    pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:] if some else None)
