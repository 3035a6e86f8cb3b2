"""What a server receives, and what is accepted from it: each lie ends in its named error."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yarl

from pipeline.store.errors import PipelineError
from pipeline.store.objects import web
from pipeline.store.objects.retry import RemoteError
from pipeline.store.objects.web import _require_redirect
from pipeline.store.shards.format import DamagedShard
from pipeline.store.share.pull import pull
from tests.project import Recorder
from tests.store.share.server import Misbehaving, Request, once
from tests.store.share.shared import IDS, ROWS, ROWS_PER_SHARD, SHARDS, pull_command

Lie = Callable[[Misbehaving], object]
FIRST, SECOND = SHARDS[:2]


def answering(answer: Callable[[Request], bool], file: str | None = SECOND) -> Lie:
    """Return a lie that answers the requests for a file, or for all."""
    return lambda server: server.faults.append(lambda r: file in (None, r.file) and answer(r))


def redirect(target: str) -> Lie:
    return answering(lambda r: r.plain(302, b"", Location=target), None)


def status(number: int, file: str = "index.json") -> Lie:
    return answering(lambda r: r.plain(number, b""), file)


def altered(name: str, change: Callable[[dict[str, Any]], object]) -> Lie:
    def lie(server: Misbehaving) -> None:
        path = server.folder / "set" / name
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return lie


def listed(**values: object) -> Lie:
    return altered("files.json", lambda v: v["shards"][1].update(values))


def endless(request: Request, number: int = 200) -> bool:
    request.send_response(number)
    if number == 206:
        request.send_header("Content-Range", f"bytes {request.start}-{request.stop - 1}/*")
    request.end_headers()
    with suppress(OSError):
        while True:
            request.send(bytes(1 << 20))
    return True


def more(request: Request) -> bool:
    request.send_response(206)
    request.send_header("Content-Range", f"bytes {request.start}-{request.stop - 1}/*")
    request.send_header("Content-Length", str(1 << 40))
    request.end_headers()
    return True


def others(request: Request) -> bool:
    request.start, request.stop = request.start + 1, request.stop + 1
    return request.answer()


def too_many_rows(values: dict[str, Any]) -> None:
    values.update(rows=ROWS + 10**13 - 20, rows_per_shard=ROWS_PER_SHARD)
    values["shards"][2].update(rows=10**13)


WRONG = answering(lambda r: r.answer(change=lambda body: body[:-1] + b"x"))
HTML = b"<!DOCTYPE html>\x1b[2J"
LIES: dict[str, tuple[Lie, type[PipelineError], str]] = {
    "missing": (status(404), RemoteError, "no index.json.*a push is not finished"),
    "unauthorised": (status(401, "files.json"), RemoteError, "HTTP 401; it requires credentials"),
    "forbidden": (status(403, FIRST), RemoteError, "HTTP 403; it requires credentials"),
    "broken": (status(500, FIRST), RemoteError, "500; 5 attempts in a row failed"),
    "html": (answering(lambda r: r.plain(200, HTML), None), RemoteError, "<!DOCTYPE html>"),
    "a local file": (redirect("file:///etc/passwd"), RemoteError, "from http to file"),
    "no place": (redirect("http://["), RemoteError, r"to 'http://\[', which is not"),
    "circles": (redirect("/set/index.json"), RemoteError, "more than 5 redirects"),
    "wrong bytes": (WRONG, DamagedShard, f"{SECOND} was received 2 times.*found"),
    "too short": (
        answering(lambda r: r.answer(change=lambda body: body[: max(0, 9000 - r.start)])),
        RemoteError,
        "ended after 9,000 of",
    ),
    "endless": (answering(endless), DamagedShard, f"{SECOND} was received 2 times"),
    "a path": (
        altered("index.json", lambda v: v["shards"][0].update(file="../x.h5")),
        RemoteError,
        "shards.0..file: Expected",
    ),
    "an encoder's path": (
        altered("files.json", lambda v: v["encoder"][0].update(file="../x")),
        RemoteError,
        "encoder.0..file: Expected `str` matching",
    ),
    "a part": (
        altered("files.json", lambda v: v["encoder"][0].update(file="x.part")),
        RemoteError,
        "encoder.0..file: Expected `str` matching",
    ),
    "a card": (
        altered("files.json", lambda v: v["card"].update(file="x")),
        RemoteError,
        "found 'x', expected SHARDS.md",
    ),
    "a shape": (
        altered("index.json", lambda v: v.update(row_shape=[10**30])),
        RemoteError,
        "larger than any disk",
    ),
    "a size": (listed(size=1 << 50), RemoteError, "expected at most"),
    "a negative size": (listed(size=-1), RemoteError, "shards.1..size: Expected"),
    "places": (listed(features=[[9, 5]]), RemoteError, "invalid byte ranges"),
    "a name twice": (listed(file=FIRST), RemoteError, "two files have the same name"),
    "another set": (listed(sha256="0" * 64), RemoteError, "belong to two sets"),
    "too many rows": (
        altered("index.json", too_many_rows),
        RemoteError,
        "not a feature set.*10000000000000",
    ),
}
LIES_OF_RANGES: dict[str, tuple[Lie, type[PipelineError], str]] = {
    "endless": (
        answering(lambda r: endless(r, 206)),
        RemoteError,
        "None bytes, .* requested; single rows cannot",
    ),
    "more": (answering(more), RemoteError, "1099511627776 bytes, "),
    "others": (answering(others), RemoteError, "other bytes than those from"),
    "fewer": (
        answering(lambda r: r.answer(change=lambda body: body[:-1])),
        RemoteError,
        "the file ended at byte .* 5 attempts in a row",
    ),
    "none": (status(416, SECOND), RemoteError, "no bytes from"),
    "a teapot": (status(418, SECOND), RemoteError, "HTTP 418; check the URL"),
    "wrong ids": (WRONG, DamagedShard, "without its features was received 2 times"),
    "wrong rows": (
        answering(
            lambda r: 9_000 < r.start < 160_000 and r.answer(change=lambda body: body[:-1] + b"x")
        ),
        DamagedShard,
        f"1 rows were received 2 times.*first .'{IDS[26]}'",
    ),
}


@pytest.mark.parametrize(
    ("lie", "expected", "message", "asked"),
    [(*lie, None) for lie in LIES.values()]
    + [(*lie, IDS[25:27]) for lie in LIES_OF_RANGES.values()],
    ids=[*LIES, *(f"{name} of ranges" for name in LIES_OF_RANGES)],
)
def test_a_lie_ends_in_its_name_and_leaves_no_output(
    tmp_path: Path,
    server: Misbehaving,
    lie: Lie,
    expected: type[PipelineError],
    message: str,
    asked: list[str] | None,
) -> None:
    lie(server)
    out = tmp_path / "out" / "x"
    with pytest.raises(expected, match=message):
        pull(f"{server.url}/set", out, ids=asked)
    assert not out.exists()
    assert not out.with_name("x.encoder").exists()
    if asked:
        server.faults = []
        pull(f"{server.url}/set", out, ids=asked)


def test_a_query_goes_with_every_file_and_is_shown_nowhere(
    tmp_path: Path, server: Misbehaving
) -> None:
    """Byte for byte, as signatures need it."""
    query, paths, monitor = "sig=a%2Fb%2Bc/d+e%C3%A9", [], Recorder()

    def fault(request: Request) -> bool:
        paths.append(request.path)
        return request.file == FIRST and request.plain(503, b"")

    server.faults = [fault]
    with pytest.raises(RemoteError, match="503") as raised:
        pull(f"{server.url}/set?{query}", tmp_path / "x", monitor=monitor)
    assert {path.partition("?")[2] for path in paths} == {query}
    assert not [text for text in [str(raised.value), *monitor.lines] if "sig" in text]


def test_a_server_learns_the_url_and_no_more(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cookies, and no passwords that ~/.netrc has for its host; the proxy is used."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    requests = []

    def fault(request: Request) -> bool:
        requests.append((request.path, dict(request.headers.items())))
        if len(requests) == 1:
            request.plain(302, b"", Location=f"{server.url}/set/index.json", Set_Cookie="a=b")
        return len(requests) == 1

    server.faults = [fault]
    pull(f"{server.url}/set", tmp_path / "x")
    assert len(requests) > 4
    assert {name for _, sent in requests for name in sent} <= {
        "Host", "Accept", "Accept-Encoding", "User-Agent", "Connection",
    }  # fmt: skip
    assert {sent["Accept-Encoding"] for _, sent in requests} == {"identity"}
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", server.url)
    with pytest.raises(RemoteError) as raised:
        pull("http://example.invalid/set", tmp_path / "y")
    assert raised.value.cause == "missing"
    assert requests[-1][0] == "http://example.invalid/set/index.json"


def test_https_is_not_left() -> None:
    _require_redirect(yarl.URL("http://a/x"), "https://b/y")
    _require_redirect(yarl.URL("https://a/x"), "//b/y")
    with pytest.raises(RemoteError, match="from https to http:"):
        _require_redirect(yarl.URL("https://a/x"), "http://a/x")


def test_waiting_for_a_server(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it asks, within bounds; one that stalls is given up."""
    waits: list[float] = []
    monkeypatch.setattr("pipeline.store.objects.retry.sleep", waits.append)
    server.faults = [
        once(lambda r: r.file == FIRST and r.plain(503, b"", Retry_After="7")),
        once(lambda r: r.file == FIRST and r.plain(429, b"", Retry_After="86400")),
    ]
    pull(f"{server.url}/set", tmp_path / "x")
    assert [seconds for seconds in waits if seconds > 1] == [7, 60]
    monkeypatch.setattr(web, "READ_SECONDS", 0.1)
    stalled = threading.Event()
    server.faults = [lambda r: r.file == SECOND and stalled.wait(10.0)]
    try:
        with pytest.raises(RemoteError, match=r"timed out.*5 attempts in a row"):
            pull(f"{server.url}/set", tmp_path / "y")
    finally:
        stalled.set()


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
