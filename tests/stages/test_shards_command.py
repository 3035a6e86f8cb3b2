"""`pipeline shards` from the command line: what it prints, refuses and leaves."""

import json
import re
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
COMMANDS = ("info", "verify", "index", "export", "import", "merge", "card", "push", "pull")


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
    assert r"dataset      a\x1b[2Jb\nc" in ended.stdout
    assert "not an image" in ended.stdout
    assert "failed rows  1" in ended.stdout


def test_verify_lists_faults_on_stdout_and_ends_with_1(
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
    assert ended.status == 1
    assert f"{path.name}, row 2, id {ids(ROWS)[12]!r}: " in ended.stdout
    assert len(ended.stdout.splitlines()) == 3
    assert pipeline("shards", "verify", "set", "--quick").status == 0
    assert pipeline("shards", "verify", path).status == 1
    path.unlink()
    assert path.name in pipeline("shards", "verify", "set", "--quick").stdout


def test_verify_compares_sources(tmp_path: Path, features: FeatureSet, pipeline: Call) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    entry = ImageEntry("a.png", "a.png", "train", ())
    Manifest("made", tmp_path, (entry,), "free", "drawn", {}).write(tmp_path / "data")
    with ShardBuild(tmp_path / "one", header(), ["a.png"]) as making:
        making.append(0, type(block(0, 1))(block(0, 1).features, np.zeros(1, np.uint8), ("",)))
        making.publish()
    ended = pipeline("shards", "verify", "one", "--images-of", "data")
    assert ended.status == 0
    assert "no source could be compared" in ended.stderr
    ended = pipeline("shards", "card", "one", "--dataset", "data")
    assert ended.status == 0
    text = Path("one/SHARDS.md").read_text()
    assert "| free |" in text
    assert "| drawn |" in text
    assert pipeline("shards", "verify", "one").status == 0


def test_a_lost_index_is_made_again(features: FeatureSet, pipeline: Call) -> None:
    before = Path("set/index.json").read_bytes()
    Path("set/index.json").unlink()
    assert "pipeline shards index" in pipeline("shards", "verify", "set").stdout
    assert pipeline("shards", "index", "set").status == 0
    assert Path("set/index.json").read_bytes() == before


def test_exported_imported_and_merged(features: FeatureSet, pipeline: Call) -> None:
    asked = [ids(ROWS)[row] for row in (22, 0, 11)]
    Path("ids.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    some = ("shards", "export", "set", "--ids", "ids.txt", "--to")
    assert pipeline(*some, "npy", "--repeat", 5, "--out", "x/y_ims.npy").status == 0
    assert pipeline(*some, "safetensors", "--out", "x/y.safetensors").status == 0
    assert pipeline(*some, "h5", "--compress", "--out", "x/y.h5").status == 0
    everything = ("shards", "export", "set", "--to", "h5", "--out", "x/all.h5")
    assert pipeline(*everything).status == 1
    assert pipeline(*everything, "--allow-failed").status == 0
    ended = pipeline(
        "shards", "import", "x/y_ims.npy", "--format", "npy", "--every", 5,
        "--ids", "x/y_ids.txt", "--dataset-name", "made", "--out", "back",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr
    back = FeatureSet(Path("back"))
    np.testing.assert_array_equal(back.read(asked), features.read(asked))
    ended = pipeline("shards", "merge", "set", "back", "--out", "both")
    assert ended.status == 1
    assert "another recipe" in ended.stderr
    shutil.copytree("set", "again")
    ended = pipeline(
        "shards", "merge", "set", "again", "--rows-per-shard", ROWS_PER_SHARD, "--out", "both"
    )
    assert ended.status == 0
    assert "23 rows were in several folders" in ended.stderr
    assert Path("both/index.json").read_bytes() == Path("set/index.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("info nowhere", 1, "nowhere not found"),
        ("verify nowhere", 1, "nowhere not found"),
        ("verify set --images-of set", 1, "pipeline prepare"),
        ("index nowhere", 1, "has no shard"),
        ("export set --out x.csv", 2, "choose the layout with --to"),
        ("export set --out x.npy --dataset set", 2, "--dataset"),
        ("export set --allow-failed --out x.parquet --dataset set", 1, "pipeline prepare"),
        ("export set --to npy --out x_ims.npy", 1, "have no features"),
        ("export set --to h5 --out x.h5 --repeat 5", 2, "--repeat"),
        ("export set --to npy --out x_ims.npy --copy", 2, "--copy"),
        ("export set --to h5 --out x.h5 --compress", 2, "--compress"),
        ("export set --to vqa --out x.h5 --allow-failed", 1, "expected (y, x, channel)"),
        ("export set --to npy --out x_ims.npy --ids no.txt", 1, "no.txt"),
        ("import no.npy --format npy --out x --dataset-name x", 2, "--ids"),
        ("import no.npy --format groups --out x --dataset-name x", 1, "no.npy"),
        ("import no.tsv --format bottom-up --out x --dataset-name x", 1, "no.tsv"),
        ("import no.tsv --format bottom-up --out x --dataset-name x --every 5", 2, "--every"),
        ("merge set nowhere --out x", 1, "nowhere"),
        ("card nowhere", 1, "nowhere"),
        ("export set --to h5 --allow-failed --out set", 1, "is a folder"),
        ("export set --to safetensors --allow-failed --out /", 1, "is a folder"),
        ("export set --to h5 --out=", 2, "an empty path"),
        ("merge set --out=", 2, "an empty path"),
        ("merge set --out /", 1, "the root"),
        ("import x --format groups --dataset-name x --out=", 2, "an empty path"),
        ("push nowhere x", 1, "nowhere/index.json not found"),
        ("push set http://localhost/x", 1, "read-only"),
        ("pull nowhere x", 1, "nowhere has no index.json"),
        ("pull set x --split train", 2, "--dataset"),
        ("pull set x --ids no.txt", 1, "no.txt"),
        ("pull set x --recipe other", 1, "'other' was requested"),
        ("pull set /", 1, "the root"),
        ("pull dvc:x/y z", 1, "DVC repository"),
    ],
)
def test_mistakes_get_one_paragraph_and_leave_nothing(
    features: FeatureSet, pipeline: Call, arguments: str, status: int, message: str
) -> None:
    before = sorted(Path().rglob("*"))
    ended = pipeline("shards", *arguments.split())
    assert ended.status == status
    paragraph = [line for line in ended.stderr.splitlines() if "error" in line.lower()]
    assert len(paragraph) == 1, ended.stderr
    assert message in paragraph[0]
    assert ended.stdout == ""
    assert sorted(Path().rglob("*")) == before


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
    assert "2 of 2 rows will be fetched" in ended.stderr
    assert "1 failed" in ended.stderr
    assert "MB moved" in ended.stderr


@pytest.mark.parametrize("command", ["info set", "verify set", "card set", "merge set --out x"])
@pytest.mark.parametrize("change", [{"shards": []}, {"row_shape": ["x"]}, {"dtype": 0}], ids=str)
def test_a_damaged_index_gives_no_traceback(
    features: FeatureSet, pipeline: Call, command: str, change: dict[str, object]
) -> None:
    path = Path("set/index.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    ended = pipeline("shards", *command.split())
    assert ended.status == 1
    assert "corrupt or of another format" in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(pipeline: Call, command: str) -> None:
    ended = pipeline("shards", *command.split(), "--help")
    assert ended.status == 0
    assert re.search(r"\bExamples?:\n", ended.stdout)


def test_the_card_names_no_place_of_this_machine(features: FeatureSet, pipeline: Call) -> None:
    assert pipeline("shards", "card", Path("set").resolve(), "--licence", "CC0").status == 0
    text = Path("set/SHARDS.md").read_text()
    assert str(Path.cwd()) not in text
    assert "CC0" in text
    assert json.loads(Path("set/index.json").read_text())["shards"][0]["sha256"] in text
