"""Pushing to folders, DVC remotes and protocols of fsspec."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard
from pipeline.store.share.pull import pull
from pipeline.store.share.push import push
from tests.store.shards.factories import build, ids
from tests.store.shards.factories import contents as files_of
from tests.store.share.shared import IDS, SHARDS, make, same_files


def test_a_set_that_has_grown_is_the_same_set(tmp_path: Path) -> None:
    """Only its new shards are sent and fetched; the smaller set is refused then."""
    there, out = tmp_path / "there", tmp_path / "out"
    build(tmp_path / "set", 12)
    shutil.copytree(tmp_path / "set", tmp_path / "small")
    push(tmp_path / "set", there)
    pull(there, out)
    build(tmp_path / "set", [*ids(12), "new-30.jpg"], add=True)
    first = out / "shard-00000-of-00002.h5"
    before = first.stat().st_ino
    push(tmp_path / "set", there)
    pull(there, out)
    same_files(out, tmp_path / "set")
    assert first.stat().st_ino == before
    with pytest.raises(RemoteError, match="not a file of this set"):
        push(tmp_path / "small", there)


def test_a_push_that_breaks_leaves_no_set_and_goes_on(
    tmp_path: Path, features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    sent: list[str] = []
    send = Remote.send

    def broken(self: Remote, name: str, blocks: Iterator[bytes]) -> None:
        def some() -> Iterator[bytes]:
            yield next(iter(blocks))
            raise KeyboardInterrupt

        sent.append(name)
        send(self, name, some() if name == SHARDS[1] else blocks)

    monkeypatch.setattr(Remote, "send", broken)
    with pytest.raises(KeyboardInterrupt):
        push(features.folder, there)
    assert sorted(files_of(there)) == ["files.json", SHARDS[0]]
    with pytest.raises(RemoteError, match="a push is not finished") as raised:
        pull(there, tmp_path / "x")
    assert raised.value.cause == "missing"
    with pytest.raises(RemoteError):
        push(make(tmp_path / "values", seed=1).folder, there)
    sent.clear()
    index = features.folder / "index.json"
    described = index.read_bytes()

    def recorded(self: Remote, name: str, blocks: Iterator[bytes]) -> None:
        sent.append(name)
        send(self, name, blocks)
        index.write_text("what another command has put there meanwhile")

    monkeypatch.setattr(Remote, "send", recorded)
    shard = features.folder / SHARDS[2]
    sound = shard.read_bytes()
    shard.write_bytes(sound[:-1] + b"x")
    with pytest.raises(DamagedShard, match="SHA-256"):
        push(features.folder, there)
    assert sorted(files_of(there)) == ["files.json", *SHARDS[:2]]
    shard.write_bytes(sound)
    index.write_bytes(described)
    push(features.folder, there)
    assert sent.count(SHARDS[0]) == 0
    assert sent[-1] == "index.json"
    index.write_bytes(described)
    same_files(there, features.folder, ("files.json",))
    unknown = tmp_path / "unknown" / SHARDS[0]  # of the same size, from nobody knows where
    unknown.parent.mkdir()
    unknown.write_bytes(bytes((there / SHARDS[0]).stat().st_size))
    with pytest.raises(RemoteError, match=f"holds a {SHARDS[0]} of another set"):
        push(features.folder, unknown.parent)
    assert [*files_of(unknown.parent)] == [SHARDS[0]]
    shutil.copy(there / SHARDS[0], unknown)
    sent.clear()
    push(features.folder, unknown.parent)
    assert SHARDS[0] not in sent
    index.write_bytes(described)
    (unknown.parent / "files.json").write_text("[")
    with pytest.raises(RemoteError, match=r"begins with '\['; push to another URL, or delete"):
        push(features.folder, unknown.parent)


def test_bytes_are_on_the_disk_before_a_file_has_its_name(
    tmp_path: Path, features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    sync = os.fsync

    def recorded(number: int) -> None:
        synced.add(os.fstat(number).st_ino)
        sync(number)

    monkeypatch.setattr(os, "fsync", recorded)
    push(features.folder, tmp_path / "there")
    there = [path for path in tmp_path.glob("there*/*") if path.is_file()]
    assert len(there) == len(SHARDS) + 5
    assert {path.stat().st_ino for path in there} <= synced


def test_places_by_other_names(
    tmp_path: Path, features: FeatureSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DVC remote, memory, and a bucket by its package; HTTP cannot be written to."""

    class Bucket(MemoryFileSystem):
        """What s3fs would be."""

        protocol = "s3"
        store: ClassVar[dict[str, Any]] = {}

    monkeypatch.setitem(_registry, "s3", Bucket)
    del _registry["s3"]  # what is registered in its place is removed after the test
    s3fs = SimpleNamespace(S3FileSystem=Bucket, __version__="2026.1")
    monkeypatch.setitem(sys.modules, "s3fs", s3fs)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text(
        "[core]\n    remote = store\n['remote \"store\"']\n    url = ../store\n"
        "['remote \"bucket\"']\n    url = s3://b\n    endpointurl = http://x\n"
    )
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for number, url in enumerate(("dvc:store/a/set", "memory://shared/set", "s3://bucket/set")):
        push(features.folder, url)
        pull(url, tmp_path / str(number))
        same_files(tmp_path / str(number), features.folder)
        pull(url, tmp_path / f"{number}-rows", ids=IDS[:30])
        assert FeatureSet(tmp_path / f"{number}-rows").ids == IDS[:30]
    assert "s3://bucket/set/index.json" in Bucket.store
    same_files(tmp_path / "store" / "a" / "set", features.folder, ("files.json",))
    for url, message in (
        ("dvc:nowhere/a", "no remote 'nowhere' with a url; known: store, bucket"),
        ("dvc:bucket/a", "options endpointurl"),
        ("http://localhost/a", "read-only"),
        ("http://user:se@cret@localhost/a?key", r"^http://localhost/a: .*password, which"),
        ("http://[::1", "valid host"),
        ("nothing://a", "unknown location"),
        ("gs://bucket/set", r"^gs://bucket/set: .*`pip install gcsfs`"),
    ):
        with pytest.raises(RemoteError, match=message):
            push(features.folder, url)
    hub = pytest.importorskip("huggingface_hub")
    assert isinstance(open_remote("hf://datasets/a/b/set")._files, hub.HfFileSystem)
