"""`pipeline shards` from the command line: what it prints and leaves."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from tests.project import Call
from tests.store.shards.factories import ROWS_PER_SHARD, block, build, header, ids

ROWS = 23


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureSet:
    """A set of 23 rows (2, 3) in `set`, of which 3 and 17 failed, in the current folder."""
    monkeypatch.chdir(tmp_path)
    build(Path("set"), ROWS)
    return FeatureSet(Path("set"))


def test_info_is_escaped(tmp_path: Path, pipeline: Call) -> None:
    with ShardBuild(tmp_path / "x", header(dataset="a\x1b[2Jb\nc"), ids(4)) as making:
        making.append(0, block(0, 4, failed=(3,)))
        making.publish()
    ended = pipeline("shards", "info", tmp_path / "x")
    assert ended.status == 0
    for text in (r"dataset      a\x1b[2Jb\nc", "not an image", "failed rows  1"):
        assert text in ended.stdout


def test_verify_lists_errors_on_stdout_and_ends_with_1(
    features: FeatureSet, pipeline: Call
) -> None:
    ended = pipeline("shards", "verify", "set")
    assert (ended.status, ended.stdout) == (0, "")
    assert "23 rows checked, 0 faults" in ended.stderr
    path = Path("set/shard-00001-of-00003.h5")
    data = bytearray(path.read_bytes())
    data[data.index(features.row(ids(ROWS)[12]).tobytes())] ^= 1
    path.write_bytes(data)
    ended = pipeline("shards", "verify", "set")
    assert (ended.status, len(ended.stdout.splitlines())) == (1, 3)
    assert f"{path.name}, row 2, id {ids(ROWS)[12]!r}: " in ended.stdout
    assert pipeline("shards", "verify", "set", "--quick").status == 0
    assert pipeline("shards", "verify", path).status == 1
    path.unlink()
    assert path.name in pipeline("shards", "verify", "set", "--quick").stdout


def test_a_lost_index_is_rebuilt(features: FeatureSet, pipeline: Call) -> None:
    before = Path("set/index.json").read_bytes()
    Path("set/index.json").unlink()
    assert "pipeline shards index" in pipeline("shards", "verify", "set").stdout
    assert pipeline("shards", "index", "set").status == 0
    assert Path("set/index.json").read_bytes() == before


def test_sources_are_compared_and_named_on_the_card(
    tmp_path: Path, features: FeatureSet, pipeline: Call
) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    entry = ImageEntry("a.png", "a.png", "train", ())
    Manifest("made", tmp_path, (entry,), "free", "drawn", {}).write(tmp_path / "data")
    with ShardBuild(tmp_path / "one", header(), ["a.png"]) as making:
        making.append(0, type(block(0, 1))(block(0, 1).features, np.zeros(1, np.uint8), ("",)))
        making.publish()
    ended = pipeline("shards", "verify", "one", "--images-of", "data")
    assert (ended.status, "no source could be compared" in ended.stderr) == (0, True)
    assert pipeline("shards", "card", Path("one").resolve(), "--dataset", "data").status == 0
    text = Path("one/SHARDS.md").read_text()
    assert "| free |" in text
    assert "| drawn |" in text
    assert str(tmp_path) not in text
    assert json.loads(Path("one/index.json").read_text())["shards"][0]["sha256"] in text
    assert pipeline("shards", "verify", "one").status == 0


def test_exported_imported_and_merged(features: FeatureSet, pipeline: Call) -> None:
    asked = [ids(ROWS)[row] for row in (22, 0, 11)]
    Path("ids.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    some = ("shards", "export", "set", "--ids", "ids.txt", "--to")
    assert pipeline(*some, "npy", "--repeat", 5, "--out", "x/y_ims.npy").status == 0
    assert pipeline(*some, "h5", "--compress", "--out", "x/y.h5").status == 0
    ended = pipeline(
        "shards", "import", "x/y_ims.npy", "--format", "npy", "--every", 5,
        "--ids", "x/y_ids.txt", "--dataset-name", "made", "--out", "back",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr
    np.testing.assert_array_equal(FeatureSet(Path("back")).read(asked), features.read(asked))
    merge = ("shards", "merge", "--rows-per-shard", ROWS_PER_SHARD, "--out", "both", "set")
    ended = pipeline(*merge, "back")
    assert (ended.status, "another recipe" in ended.stderr) == (1, True)
    shutil.copytree("set", "again")
    ended = pipeline(*merge, "again")
    assert (ended.status, "23 rows were in several folders" in ended.stderr) == (0, True)
    assert Path("both/index.json").read_bytes() == Path("set/index.json").read_bytes()


def test_pushed_and_pulled(features: FeatureSet, pipeline: Call) -> None:
    ended = pipeline("shards", "push", "set", "there")
    assert (ended.status, ended.stdout) == (0, "")
    assert "no SHARDS.md in set" in ended.stderr
    assert "3 of 3" not in ended.stderr
    assert pipeline("shards", "pull", "there", "back", "--recipe", "made").status == 0
    assert Path("back/index.json").read_bytes() == Path("set/index.json").read_bytes()
    Path("ids.txt").write_text(f"{ids(ROWS)[21]}\n{ids(ROWS)[3]}\n", encoding="utf-8")
    ended = pipeline("shards", "pull", "there", "some", "--ids", "ids.txt")
    assert (ended.status, ended.stdout) == (0, "")
    for text in ("2 of 2 rows will be fetched", "1 failed", "MB moved"):
        assert text in ended.stderr


@pytest.mark.parametrize("command", ["info set", "verify set", "card set", "merge set --out x"])
@pytest.mark.parametrize("change", [{"shards": []}, {"row_shape": ["x"]}, {"dtype": 0}], ids=str)
def test_a_damaged_index_has_no_traceback(
    features: FeatureSet, pipeline: Call, command: str, change: dict[str, object]
) -> None:
    path = Path("set/index.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    ended = pipeline("shards", *command.split())
    assert ended.status == 1
    assert "corrupt or of another format" in ended.stderr + ended.stdout
