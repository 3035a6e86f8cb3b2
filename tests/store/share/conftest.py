"""A set that was pushed, and a server that has it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.store.objects import retry, web
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.share.push import push
from tests.store.share.server import Misbehaving, serving
from tests.store.share.shared import make


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once, and no proxy is asked."""
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(web, "READ_SECONDS", 5.0)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a set, `made/set`, that was pushed to `srv/set`."""
    folder = tmp_path_factory.mktemp("pushed")
    push(make(folder / "made" / "set").folder, folder / "srv" / "set")
    return folder


@pytest.fixture
def features(tmp_path: Path, pushed: Path) -> FeatureSet:
    shutil.copytree(pushed / "made", tmp_path / "made")
    return FeatureSet(tmp_path / "made" / "set")


@pytest.fixture
def server(tmp_path: Path, pushed: Path) -> Iterator[Misbehaving]:
    """Serves `srv`, to which the set was pushed as `set`."""
    shutil.copytree(pushed / "srv", tmp_path / "srv")
    with serving(tmp_path / "srv") as server:
        yield server
