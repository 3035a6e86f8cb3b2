"""Commands on feature sets in an object store: the outputs and answers of the local folders."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import fsspec
import pytest

from pipeline.datasets.manifest import read_manifest
from pipeline.store.shards.feature_set import FeatureSet
from tests.project import Call
from tests.stages.conftest import LITE, NAME
from tests.store.shards.factories import contents

FEATURES = f"data/features/scenes/{LITE}"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))


def write_tars(scenes: Path, folder: Path) -> None:
    """Write the scenes as two WebDataset shards, each image beside a text with its captions."""
    folder.mkdir()
    entries = read_manifest(scenes).select()
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for entry in entries[number::2]:
                texts = "\n".join(entry.captions).encode()
                image = (scenes / "images" / entry.file).read_bytes()
                stem, _, suffix = entry.file.rpartition(".")
                for name, data in ((f"{stem}.{suffix}", image), (f"{stem}.txt", texts)):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def test_from_tars_to_recall_with_features_in_a_store(
    project: Path, scenes: Path, made: Path, pipeline: Call
) -> None:
    def run(*arguments: object) -> str:
        ended = pipeline(*arguments)
        assert ended.status == 0, ended.stderr
        return ended.stdout

    Path("params.yaml").write_bytes((made / "params.yaml").read_bytes())
    write_tars(scenes, project / "tars")
    dataset = ("--dataset", "data/mine")
    run("prepare", "folder", "--captions", "tars/{0..1}.tar", "--out", "data/mine")
    store = "memory://from-tars"
    for place in ("", f"{store}/"):
        run("extract", "--recipe", LITE, *dataset, "--out", f"{place}images")
        run("text", "--encoder", "mean", *dataset, "--out", f"{place}captions")
    there = fsspec.filesystem("memory")
    for folder in ("images", "captions", "captions.encoder"):
        for file in Path(folder).iterdir():
            assert there.cat_file(f"/from-tars/{folder}/{file.name}") == file.read_bytes()
    for name, place in (("here", ""), ("there", f"{store}/")):
        features = ("--image-features", f"{place}images", "--caption-features", f"{place}captions")
        of = ("--experiment", NAME, *dataset, *features)
        run("train", *of, "--out", f"{name}/head")
        run("embed", *of, "--head", f"{name}/head", "--out", f"{name}/test.h5")
        run("evaluate", f"{name}/test.h5", "--out", f"{name}/tables")
    assert contents(Path("there")) == contents(Path("here"))
    run("embed", *of, "--head", "there/head", "--out", f"{store}/test.h5")
    assert there.cat_file("/from-tars/test.h5") == Path("here/test.h5").read_bytes()
    run("evaluate", f"{store}/test.h5", "--out", "again/tables")
    assert contents(Path("again/tables")) == contents(Path("here/tables"))
    assert there.find("/from-tars/.work/test.h5") == []
    assert json.loads(Path("there/tables/recall.json").read_text())


@pytest.mark.parametrize(
    "line",
    [
        "duplicates SET SET2",
        "duplicates SET --dataset data/scenes --between --json",
        "search --features SET --image ID --json",
        f"evaluate data/embeddings/scenes/{NAME}.h5 --out tables --leaks SET",
        "shards verify SET",
        "shards verify SET --quick --images-of data/scenes",
        "shards export SET --out out.npy",
        "shards export SET --out out.parquet --dataset data/scenes",
        "shards export SET --copy --compress --out out.h5",
        "shards merge SET SET2 --out merged",
    ],
)
def test_a_url_answers_as_the_folder(copy: Path, pipeline: Call, line: str) -> None:
    made = {"ID": FeatureSet(FEATURES).ids[0]}
    for name in ("SET", "SET2"):
        url = f"memory://answers/{name}"
        assert pipeline("shards", "push", FEATURES, url).status == 0
        made[name] = url

    def answer(named: dict[str, str]) -> tuple[int, str, str, dict[str, bytes]]:
        before = contents(copy)
        ended = pipeline(*(named.get(word, word) for word in line.split()))
        changed = {n: b for n, b in contents(copy).items() if before.get(n) != b}
        for name in changed:
            Path(name).unlink()
        text = ended.stdout
        for name in ("SET2", "SET"):
            text = text.replace(str(Path(named[name])), name)
        return ended.status, " ".join(text.split()), ended.stderr, changed

    shutil.copytree(FEATURES, "second")
    here = answer({**made, "SET": FEATURES, "SET2": "second"})
    there = answer(made)
    assert here[0] == 0, here[2]
    assert there[:2] == here[:2], there[2]
    assert there[3] == here[3]


def test_info_of_a_url_shows_how_it_is_read(copy: Path, pipeline: Call) -> None:
    url = "memory://info/set"
    assert pipeline("shards", "push", FEATURES, url).status == 0
    here, there = (pipeline("shards", "info", path) for path in (FEATURES, url))
    assert there.status == 0, there.stderr
    described, _, reading = there.stdout.partition("to read it:")
    assert f"rows = pipeline.read_features({url!r}).read(ids)" in reading
    assert described.splitlines()[1:] == here.stdout.partition("to read ")[0].splitlines()[1:]
    ended = pipeline("shards", "info", url, "--json")
    assert json.loads(ended.stdout)["path"] == url


def test_what_needs_files_on_this_machine_is_refused(copy: Path, pipeline: Call) -> None:
    url = "memory://refused/set"
    assert pipeline("shards", "push", FEATURES, url).status == 0
    ended = pipeline("shards", "export", url, "--out", "view.h5")
    assert (ended.status, "pass --copy" in ended.stderr) == (1, True)
    for command in ("index", "card"):
        ended = pipeline("shards", command, url)
        assert (ended.status, "is a URL, expected a path" in ended.stderr) == (2, True)
    ended = pipeline("shards", "info", "s3://me:secret@bucket/set")
    assert (ended.status, "secret@" in ended.stderr) == (1, False)
    assert "without password and query" in ended.stderr
