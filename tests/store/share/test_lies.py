"""What a server gives that is not what it should: each case ends in its named error."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.errors import PipelineError
from pipeline.store.shards.format import DamagedShard
from pipeline.store.share import web
from pipeline.store.share.pull import pull
from pipeline.store.share.retry import RemoteError
from tests.store.share.server import Misbehaving, Request
from tests.store.share.shared import (
    IDS,
    ROWS,
    ROWS_PER_SHARD,
    SHARDS,
)

Lie = Callable[[Misbehaving], None]


def redirect(server: Misbehaving, target: str) -> None:
    server.faults = [lambda r: r.plain(302, b"", Location=target)]


def status(number: int, name: str = "index.json") -> Lie:
    def answer(server: Misbehaving) -> None:
        server.faults = [lambda r: r.file == name and r.plain(number, b"")]

    return answer


def html(server: Misbehaving) -> None:
    server.faults = [lambda r: r.plain(200, b"<!DOCTYPE html>\x1b[2J")]


def wrong_bytes(server: Misbehaving) -> None:
    server.faults = [
        lambda r: r.file == SHARDS[1] and r.answer(change=lambda body: body[:-1] + b"x")
    ]


def too_short(server: Misbehaving) -> None:
    server.faults = [
        lambda r: r.file == SHARDS[1] and r.answer(change=lambda b: b[: max(0, 9000 - r.start)])
    ]


def endless(server: Misbehaving) -> None:
    def answer(request: Request) -> bool:
        request.send_response(200)
        request.end_headers()
        with suppress(OSError):
            while True:
                request.send(bytes(1 << 20))
        return True

    server.faults = [lambda r: r.file == SHARDS[1] and answer(r)]


def altered(name: str, change: Callable[[dict[str, Any]], object]) -> Lie:
    def lie(server: Misbehaving) -> None:
        path = server.folder / "set" / name
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return lie


def contents_lie(key: str, value: object) -> Lie:
    return altered("files.json", lambda v: v["shards"][1].update({key: value}))


LIES: dict[str, tuple[Lie, type[PipelineError], str]] = {
    "not there": (status(404), RemoteError, "no index.json.*a push is not finished"),
    "unauthorised": (status(401, "files.json"), RemoteError, "HTTP 401; it requires credentials"),
    "forbidden": (status(403, SHARDS[0]), RemoteError, "HTTP 403; it requires credentials"),
    "broken": (status(500, SHARDS[0]), RemoteError, "500; 5 attempts in a row failed"),
    "html": (html, RemoteError, "corrupt or of another format.*<!DOCTYPE html>"),
    "a local file": (lambda s: redirect(s, "file:///etc/passwd"), RemoteError, "from http to file"),
    "no place": (lambda s: redirect(s, "http://["), RemoteError, r"to 'http://\[', which is not"),
    "circles": (lambda s: redirect(s, "/set/index.json"), RemoteError, "more than 5 redirects"),
    "wrong bytes": (wrong_bytes, DamagedShard, f"{SHARDS[1]} was received 2 times.*found"),
    "too short": (too_short, RemoteError, "ended after 9,000 of"),
    "endless": (endless, DamagedShard, f"{SHARDS[1]} was received 2 times"),
    "a path": (
        altered("index.json", lambda v: v["shards"][0].update(file="../x.h5")),
        RemoteError,
        "shards.0..file: Expected",
    ),
    "an encoder's path": (
        altered("files.json", lambda v: v["encoder"][0].update(file="../x")),
        RemoteError,
        "not have a plain name",
    ),
    "a part": (
        altered("files.json", lambda v: v["encoder"][0].update(file="x.part")),
        RemoteError,
        "not have a plain name",
    ),
    "a shape": (
        altered("index.json", lambda v: v.update(row_shape=[10**30])),
        RemoteError,
        "larger than any disk",
    ),
    "a size": (contents_lie("size", 1 << 50), RemoteError, "expected at most"),
    "places": (contents_lie("features", [[9, 5]]), RemoteError, "invalid byte ranges"),
    "another set": (contents_lie("sha256", "0" * 64), RemoteError, "belong to two sets"),
    "too many rows": (
        altered(
            "index.json",
            lambda v: (
                v.update(rows=ROWS + 10**13 - 20, rows_per_shard=ROWS_PER_SHARD),
                v["shards"][2].update(rows=10**13),
            ),
        ),
        RemoteError,
        "not a feature set.*10000000000000",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_in_its_name_and_leaves_no_output(
    tmp_path: Path, server: Misbehaving, lie: str
) -> None:
    tell, expected, message = LIES[lie]
    tell(server)
    with pytest.raises(expected, match=message) as raised:
        pull(f"{server.url}/set", tmp_path / "out" / "x")
    assert isinstance(raised.value, PipelineError)
    assert not (tmp_path / "out" / "x").exists()
    assert not (tmp_path / "out" / "x.encoder").exists()


def test_a_server_that_stalls_is_given_up(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "READ_SECONDS", 0.1)
    stalled = threading.Event()
    server.faults = [lambda r: r.file == SHARDS[1] and stalled.wait(10.0)]
    try:
        with pytest.raises(RemoteError, match=r"timed out.*5 attempts in a row"):
            pull(f"{server.url}/set", tmp_path / "x")
    finally:
        stalled.set()


def test_wrong_bytes_of_rows_are_found(tmp_path: Path, server: Misbehaving) -> None:
    """Of a row by its CRC-32, of the ids by their SHA-256; ids and URL are named."""
    wrong_bytes(server)
    with pytest.raises(DamagedShard, match="without its features was received 2 times"):
        pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
    change = server.faults
    server.faults = [lambda r: 9_000 < r.start < 160_000 and change[0](r)]
    with pytest.raises(DamagedShard, match=f"1 rows were received 2 times.*first .'{IDS[26]}'"):
        pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
    server.faults = []
    pull(f"{server.url}/set", tmp_path / "x", ids=IDS[25:27])
