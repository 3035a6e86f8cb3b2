"""Two writers of one output in a store: one is refused, and a dead one is replaced."""

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from pipeline.store.objects import lease
from pipeline.store.objects.lease import only_writer
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import read_bounded
from pipeline.store.objects.retry import RemoteError


@pytest.fixture(params=["memory", "s3", "file"])
def folder(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Remote]:
    """A folder of each kind of store."""
    bases = {"memory": "memory://leases", "file": f"file://{tmp_path}"}
    base = bases.get(request.param) or request.getfixturevalue("s3")
    yield open_remote(f"{base}/{request.node.name}")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer is dead after 0.5 s."""
    monkeypatch.setattr(lease, "SECONDS", 0.5)


def write(folder: Remote, number: int, **about: Any) -> None:
    known = {"host": "elsewhere", "process": "7", "beat": 0, "state": "writing"}
    folder.put(f"lease-{number:06d}.json", json.dumps(known | about).encode())


def test_a_second_writer_is_refused_until_the_first_ends(folder: Remote) -> None:
    with only_writer(folder, "OUT", print) as first:
        with pytest.raises(RemoteError, match=rf"OUT is being written .* process {os.getpid()} of"):
            only_writer(folder, "OUT", print).__enter__()
        assert first.name == "lease-000001.json"
    with only_writer(folder, "OUT", print) as second:
        assert [*folder.files()] == [second.name] == ["lease-000002.json"]


def test_one_of_many_that_begin_at_once_writes(folder: Remote) -> None:
    barrier, held, refused = threading.Barrier(5), list[str](), list[str]()

    def begin() -> None:
        barrier.wait()
        try:
            with only_writer(folder, "OUT", print) as mine:
                held.append(mine.name)
                ended.wait()
        except RemoteError as error:
            refused.append(str(error))
        if len(refused) == 4:
            ended.set()

    ended = threading.Event()
    threads = [threading.Thread(target=begin) for _ in range(5)]
    for thread in threads:
        thread.start()
    ended.wait(20)
    for thread in threads:
        thread.join(20)
    assert (held, len(refused)) == (["lease-000001.json"], 4)


def test_a_dead_writer_is_replaced_and_a_living_one_is_not(folder: Remote) -> None:
    lines: list[str] = []
    write(folder, 4, machine=lease._machine(), process="1 of another start")
    with only_writer(folder, "OUT", lines.append) as mine:
        assert (mine.name, lines) == ("lease-000005.json", []), "of this machine, seen at once"
    write(folder, 9)
    with only_writer(folder, "OUT", lines.append) as mine:
        assert mine.name == "lease-000010.json"
    assert lines == ["waiting 0 s: process 7 of elsewhere may still be writing"]
    write(folder, 20)
    beats = iter(range(1, 1000))
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.05):
            write(folder, 20, beat=next(beats))

    thread = threading.Thread(target=live)
    thread.start()
    with pytest.raises(RemoteError, match="is being written by another run, process 7 of else"):
        only_writer(folder, "OUT", print).__enter__()
    ended.set()
    thread.join()


def test_a_writer_that_slept_finds_its_successor(folder: Remote) -> None:
    with only_writer(folder, "OUT", print) as mine:
        mine.require()
        mine._ended.set()  # as if the machine slept
        write(folder, 2)
        mine._renewed -= 1.0
        with pytest.raises(RemoteError, match="another run has taken over"):
            mine.require()


def test_a_lease_that_was_replaced_is_not_written_again(folder: Remote) -> None:
    with only_writer(folder, "OUT", print) as mine:
        write(folder, 2)
        folder.remove(mine.name)  # as its successor does
        deadline = time.monotonic() + 20
        while not mine._lost and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(RemoteError, match="another run has taken over"):
            mine.require()
    assert [*folder.files()] == ["lease-000002.json"]


def test_only_the_same_machine_knows_at_once_that_a_process_has_ended(folder: Remote) -> None:
    write(folder, 1, host=os.uname().nodename, machine="another container", process="1 of another")
    lines: list[str] = []
    with only_writer(folder, "OUT", lines.append):
        assert len(lines) == 1


def test_a_bucket_that_does_not_exist_is_named(s3: str) -> None:
    with pytest.raises(RemoteError, match="OUT: its bucket does not exist; create it"):
        only_writer(open_remote("s3://no-such-bucket/x"), "OUT", print).__enter__()


def test_a_lease_renewed_since_it_was_listed_is_read(folder: Remote) -> None:
    write(folder, 1)
    assert [*folder.files()] == ["lease-000001.json"]
    other = type(folder._files)(skip_instance_cache=True)
    other.pipe_file(folder._path("lease-000001.json"), b'{"beat": 12345}')
    assert read_bounded(folder, "lease-000001.json", 100, print) == b'{"beat": 12345}'
