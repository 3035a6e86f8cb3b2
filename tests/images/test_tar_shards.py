"""Images of tar files in a store: features equal to those of unpacked files, shard by shard."""

import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import numpy as np
import pytest
from PIL import Image

import pipeline
from pipeline.images import image_source, tar_shards
from pipeline.store.errors import PipelineError, WrongUsage
from pipeline.store.jobs import object_shards
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retry import RemoteError
from pipeline.store.progress import QUIET
from tests.store.workers.tasks import serial

RECIPE = "timm:test_resnet"
HOW = pipeline.Compute("random:0", batch_size=4)
PHOTOS = 10


def photo(number: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (30 + number % 7, 40, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def tar_of(names: list[str], first: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for number, name in enumerate(names, first):
            data = photo(number)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.fixture
def tars(tmp_path: Path, s3: str, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Three tar files in a store, and a folder of their unpacked members."""
    url, files = f"{s3}/{request.node.name[:40]}", fsspec.filesystem("s3")
    unpacked = tmp_path / "tars"
    for number in range(3):
        names = [f"{at:02}.png" for at in range(PHOTOS)]
        data = tar_of(names, PHOTOS * number)
        files.pipe(f"{url}/tars/{number}.tar", data)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(unpacked / str(number), filter="data")
    return url, unpacked


def extract(url: str, **options: Any) -> Any:
    images = options.pop("images", f"{url}/tars/{{0..2}}.tar")
    return pipeline.extract(
        images, f"{url}/out", recipe=RECIPE, compute=HOW,
        storage=pipeline.Storage(**options.pop("storage", {})), **options,
    )  # fmt: skip


class Lines(list[str]):
    """A monitor that keeps what is logged."""

    log, progress = list.append, QUIET.progress


def objects(url: str) -> dict[str, bytes]:
    files = fsspec.filesystem("s3")
    files.invalidate_cache()
    folder = f"{url}/out".removeprefix("s3://")
    return {path[len(folder) + 1 :]: files.cat_file(path) for path in files.find(folder)}


def test_a_set_in_a_store_is_that_of_unpacked_files(
    tars: tuple[str, Path], tmp_path: Path, s3_requests: list[tuple[str, str]]
) -> None:
    url, unpacked = tars
    index = extract(url)
    out = tmp_path / "out"
    assert index == pipeline.extract(
        unpacked, out, recipe=RECIPE, compute=HOW, storage=pipeline.Storage(rows_per_shard=PHOTOS)
    )
    assert objects(url) == {path.name: path.read_bytes() for path in out.iterdir()}
    s3_requests.clear()
    assert extract(url) == index
    assert {method for method, path in s3_requests if "shard-" in path} <= {"HEAD"}


def test_a_changed_tar_costs_its_shard_and_a_new_one_is_appended(
    tars: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = tars
    files = fsspec.filesystem("s3")
    extract(url, images=f"{url}/tars/{{0..1}}.tar")
    before = objects(url)
    with pytest.raises(PipelineError, match=r"has 2 shards, and 3 are requested; `add=True`"):
        extract(url)
    assert extract(url, storage={"add": True}).rows == 3 * PHOTOS
    after = objects(url)
    assert sorted(after)[1:] == [
        "shard-00000-of-00002.h5", "shard-00001-of-00002.h5", "shard-00002-of-00003.h5",
    ]  # fmt: skip
    assert {name: after[name] for name in sorted(before)[1:]} == dict(sorted(before.items())[1:])
    names = [f"{at:02}.png" for at in range(4)]
    files.pipe(f"{url}/tars/1.tar", tar_of(names, 100))
    assert [entry.rows for entry in extract(url).shards] == [PHOTOS, 4, PHOTOS]
    assert {name for name, data in objects(url).items() if after[name] != data} == {
        "index.json", "shard-00001-of-00002.h5",
    }  # fmt: skip
    (record,) = [name for name in files.find(f"{url}/.work/out") if "00001-of-00002" in name]
    late = files.cat_file(record)
    files.pipe(re.sub(r"[0-9a-f]{12}\.json", f"{0:012x}.json", record), late)
    lines = Lines()
    extract(url, monitor=lines)
    assert lines[0].endswith("; 2 are done"), "a late task of an older run may have written it"
    kill_while_both_change(url, monkeypatch)
    pipeline.pull(f"{url}/out", tmp_path / "pulled")
    assert pipeline.verify(tmp_path / "pulled").faults == []


def kill_while_both_change(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the older files of a set that has grown; the killed run continues."""
    for number in range(2):
        fsspec.filesystem("s3").pipe(f"{url}/tars/{number}.tar", tar_of(["a.png"], 200 + number))
    with monkeypatch.context() as patch:
        patch.setattr(object_shards, "publish_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            extract(url)
    assert [entry.rows for entry in extract(url).shards] == [1, 1, PHOTOS]


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_an_unreadable_tar_is_a_failed_row_with_its_name(tars: tuple[str, Path]) -> None:
    url, _ = tars
    files = fsspec.filesystem("s3")
    whole = files.cat_file(f"{url}/tars/1.tar")
    files.pipe(f"{url}/tars/1.tar", whole[:2000])
    files.rm(f"{url}/tars/2.tar")
    index = extract(url)
    assert [(entry.rows, entry.failed_rows) for entry in index.shards] == [
        (PHOTOS, 0), (1, 1), (1, 1),
    ]  # fmt: skip
    (one, cut, why), (other, missing, _) = pipeline.read_features(f"{url}/out").failures()
    assert (one, cut, other, missing) == ("1.tar", "unreadable", "2.tar", "missing")
    assert "1.tar is not an uncompressed tar file, or is corrupt" in why
    assert extract(url) == index, "known as failed"
    files.pipe(f"{url}/tars/1.tar", whole)
    before = objects(url)

    def refuse(self: Remote, name: str, *_: Any) -> None:
        raise RemoteError("access denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "read", refuse)
        with pytest.raises(RemoteError, match="access denied"):
            extract(url)
    assert objects(url).items() <= before.items(), "no row for what was not read"
    assert extract(url).failed_rows == 1


def test_a_missing_tar_costs_no_finished_features(tars: tuple[str, Path]) -> None:
    url, _ = tars
    index, files, lines = extract(url), fsspec.filesystem("s3"), Lines()
    before = objects(url)
    data = files.cat_file(f"{url}/tars/1.tar")
    files.rm(f"{url}/tars/1.tar")
    for storage in ({}, {"retry_failed": True}):
        assert extract(url, storage=storage, monitor=lines) == index
    assert "1 shard of inputs that are missing now: kept unchanged" in lines
    files.rm(f"{url}/tars", recursive=True)
    with pytest.raises(PipelineError, match=r"tars has none of the 3 tar files, such as 0\.tar"):
        extract(url, storage={"dtype": "float16", "update": True})
    assert objects(url) == before, "not touched before it is known that there are inputs"
    files.pipe(f"{url}/tars/1.tar", data)
    files.rm(f"{url}/out/shard-00002-of-00003.h5")
    assert [entry.failed_rows for entry in extract(url).shards] == [0, 0, 1]


def test_a_tar_that_only_the_command_sees_is_no_failed_row(
    tars: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = tars
    unseen = Mock(side_effect=RemoteError("0.tar does not exist", "missing"))
    monkeypatch.setattr(tar_shards, "receive", unseen)
    with pytest.raises(PipelineError, match="did for the command; mount"):
        extract(url)
    assert objects(url) == {}


def test_names_that_may_give_one_id_to_two_images_are_refused(tars: tuple[str, Path]) -> None:
    url, _ = tars
    with pytest.raises(PipelineError, match=r"0/1\.tar and 0\.tar are both in the folder 0"):
        extract(url, images=[f"{url}/tars/0.tar", f"{url}/tars/0/1.tar"])
    with pytest.raises(WrongUsage, match="extract each of timm:test_resnet, timm:test_vit to"):
        pipeline.extract(
            f"{url}/tars/0.tar", f"{url}/out", recipe="timm:test_resnet+timm:test_vit", compute=HOW
        )


def test_other_features_are_not_replaced_without_a_word(tars: tuple[str, Path]) -> None:
    url, _ = tars
    extract(url)
    before = objects(url)
    with pytest.raises(PipelineError, match=r"holds features of another recipe.*update=True"):
        extract(url, storage={"dtype": "float16"})
    with pytest.raises(PipelineError, match=r"has shard-00000-of-00003\.h5 with other rows"):
        extract(url, images=[f"{url}/tars/{number}.tar" for number in (2, 1, 0)])
    assert objects(url) == before
    with pytest.raises(PipelineError, match=r"has none of the 10 tar files, such as 10\.tar"):
        extract(url, images=f"{url}/tars/{{10..19}}.tar")
    with pytest.raises(WrongUsage, match="omit `limit"):
        extract(url, select=pipeline.Selection(limit=3))
    assert extract(url, storage={"dtype": "float16", "update": True}).header.dtype == "float16"


def test_one_of_two_writers_is_refused(tars: tuple[str, Path]) -> None:
    url, _ = tars

    class Second:
        error: PipelineError | None = None

        def log(self, line: str) -> None:
            if "shards of rows" in line and self.error is None:
                with pytest.raises(PipelineError) as raised:
                    extract(url)
                self.error = raised.value

        progress = QUIET.progress

    second = Second()
    extract(url, monitor=second)
    assert "is being written by another run, process" in str(second.error)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> pipeline.Place:
    """A scheduler whose tasks are pickled, and run here."""

    @contextmanager
    def executor(self: pipeline.Place, monitor: Any, gpu: bool) -> Iterator[Any]:
        yield serial

    monkeypatch.setattr(pipeline.Place, "executor", executor)
    return pipeline.Place(scheduler="tcp://any:1")


def test_workers_receive_the_weights_from_the_store(
    tars: tuple[str, Path], elsewhere: pipeline.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = tars
    extract(url)
    here = objects(url)
    fsspec.filesystem("s3").rm(f"{url}/out", recursive=True)
    loads: list[str] = []
    load = image_source.load_weights

    def noted(recipe: Any, *given: Any) -> Any:
        loads.append(recipe.name)
        return load(recipe, *given)

    monkeypatch.setattr(image_source, "load_weights", noted)
    image_source._network.cache_clear()
    extract(url, place=elsewhere)
    assert (objects(url), loads) == (here, ["timm:test_resnet.r160_in1k"]), "by the command alone"
    assert len(fsspec.filesystem("s3").find(f"{url}/.work/files")) == 1


def test_a_killed_run_continues_and_a_task_of_it_publishes_nothing(
    tars: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each write to the store: no index, no shard that is not whole."""
    url, _ = tars
    extract(url)
    files, whole, kept = fsspec.filesystem("s3"), objects(url), []
    files.rm(f"{url}/out", recursive=True)
    files.rm(f"{url}/.work", recursive=True)
    put = Remote.put

    def dying(self: Remote, name: str, data: Any) -> None:
        writes.append(name)
        if len(writes) > left and not name.startswith("lease"):
            raise KeyboardInterrupt
        put(self, name, data)

    monkeypatch.setattr(Remote, "put", dying)
    publish = object_shards.publish_shard
    for allowed in range(4):
        writes: list[str] = []
        left = allowed
        with pytest.raises(KeyboardInterrupt):
            extract(url)
        there = objects(url)
        assert there.items() <= whole.items()
        assert "index.json" not in there
        kept.append(len(there))
    assert kept == [0, 1, 1, 3]

    def late(number: int, task: Any, on_progress: Any) -> Any:
        with pytest.raises(PipelineError, match="the run of this task has ended"):
            publish(number, replace(task, lease="lease-000001.json"), on_progress)
        return publish(number, task, on_progress)

    monkeypatch.setattr(Remote, "put", put)
    monkeypatch.setattr(object_shards, "publish_shard", late)
    extract(url)
    assert objects(url) == whole
