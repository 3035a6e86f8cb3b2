"""`pipeline prepare`: each form of the command line ends in a dataset or in a clear complaint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import read_manifest
from stages.prepare import prepare


def run(*arguments: object) -> Result:
    return CliRunner().invoke(prepare, [str(a) for a in arguments])


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "images" / name).touch()
    return tmp_path / "images"


def test_scenes(tmp_path: Path) -> None:
    result = run("scenes", "--num-images", 6, "--seed", 5, "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    first, last = result.stderr.splitlines()
    assert first.startswith("prepare scenes: num-images=6 seed=5 out=")
    assert last.startswith("6 images (train 4, val 1, test 1), 30 captions in ")
    assert result.stdout == ""
    assert read_manifest(tmp_path / "s").notes["seed"] == 5


def test_flickr8k(tmp_path: Path, images: Path) -> None:
    for folder in ("annotations", "splits"):
        (tmp_path / folder).mkdir()
    tokens = tmp_path / "annotations" / "x.token.txt"
    tokens.write_text("a.jpg#0\tone\na.jpg#1\ttwo\nb.jpg#0\tx\nb.jpg#1\ty\n")
    (tmp_path / "splits" / "train.txt").write_text("a.jpg\n")
    start = ("flickr8k", "--root", tmp_path, "--out", tmp_path / "out")
    result = run(*start, "--captions-per-image", 2, "--expect", "train=1")
    assert result.exit_code == 0, result.output
    assert 'images in no split: 1; images in no split first: ["b.jpg"]' in result.stderr
    spelled = (*start, "--captions-per-image", 2, "--images", images, "--captions", tokens)
    result = run(*spelled, "--split", f"test={tmp_path / 'splits' / 'train.txt'}")
    assert result.exit_code == 0, result.output
    assert read_manifest(tmp_path / "out").counts == {"test": 1}
    assert isinstance(run(*start).exception, DatasetError)


def test_coco(tmp_path: Path, images: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        document = {
            "images": [{"id": number, "file_name": f"{name}.jpg"}],
            "annotations": [{"id": 1, "image_id": number, "caption": "x"}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    start = ("coco", "--root", images, "--out", tmp_path / "out", "--captions")
    assert run(*start, tmp_path / "a.json").exit_code == 0
    assert read_manifest(tmp_path / "out").counts == {"val": 1}
    result = run(
        *start, tmp_path / "a.json", "--split", "dev", "--captions", f"train={tmp_path}/b.json"
    )
    assert result.exit_code == 0, result.output
    assert read_manifest(tmp_path / "out").counts == {"dev": 1, "train": 1}
    (tmp_path / "images" / "sub").mkdir()
    (images / "b.jpg").rename(images / "sub" / "b.jpg")
    result = run(*start, f"train={tmp_path}/b.json", "--folder", "train=sub")
    assert result.exit_code == 0, result.output
    assert read_manifest(tmp_path / "out").entries[0].file == "sub/b.jpg"


def test_karpathy_and_folder(tmp_path: Path, images: Path) -> None:
    sentences = [{"raw": "x", "tokens": ["x"]}]
    document = {
        "dataset": "tiny",
        "images": [{"filename": "a.jpg", "split": "restval", "sentences": sentences}],
    }
    (tmp_path / "d.json").write_text(json.dumps(document))
    start = ("--root", images, "--out", tmp_path / "out", "--captions")
    result = run("karpathy", *start, tmp_path / "d.json", "--restval", "keep")
    assert result.exit_code == 0, result.output
    assert read_manifest(tmp_path / "out").counts == {"restval": 1}
    (tmp_path / "c.csv").write_text("path,caption\na.jpg,x\nb.jpg,y\n")
    result = run("folder", *start, tmp_path / "c.csv")
    assert result.exit_code == 0, result.output
    assert "split by hash of id" in result.stderr
    assert read_manifest(tmp_path / "out").name == "out"


def test_clips(tmp_path: Path, images: Path) -> None:
    (images / "a.jpg").rename(images / "a.mp4")
    (tmp_path / "c.csv").write_text(
        "path,caption,split\n" + "".join(f"a.mp4,x{k},train\n" for k in range(7))
    )
    start = ("clips", "--root", images, "--out", tmp_path / "out", "--captions", tmp_path / "c.csv")
    result = run(*start, "--expect", "train=1")
    assert result.exit_code == 0, result.output
    assert "1 clip (train 1), 7 captions in " in result.stderr
    found = read_manifest(tmp_path / "out")
    assert (found.media, found.entries[0].caption_ids[-1]) == ("clips", "a.mp4#6")
    (images / "a.mp4").unlink()
    with pytest.raises(DatasetError, match=r"line 2: clip 'a.mp4' not found"):
        raise run(*start).exception or AssertionError


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("c.csv", b"path;caption\na.jpg;x\n", "", 'separator: "semicolon"'),
        ("c.tsv", b"path\tcaption\na.jpg\tx\n", "", 'separator: "tab"'),
        ("c.csv", "path,caption\na.jpg,x\n".encode("utf-16"), "", 'encoding: "utf-16"'),
        ("c.csv", b"path,caption\na.jpg,\x80\n", "--encoding cp1252", 'encoding: "cp1252"'),
        ("c.csv", b"image,text\na.jpg,x\n", "", 'recognised: {"path": ["image"], "caption":'),
        ("c.csv", b"filename,caption\na.jpg,x\n", "", 'recognised: {"path": ["filename"]}'),
        ("metadata.jsonl", b'{"file_name": "a.jpg", "text": "x"}\n', "", "columns recognised"),
        ("c.csv", b"path,caption1,caption2\na.jpg,x,y\n", "", '["caption1", "caption2"]'),
        ("c.csv", b"x,y\na.jpg,x\n", "--path-column x --caption-column y", '"path": ["x"]'),
        ("c.json", b'[{"path": "a.jpg", "caption": "x"}]', "", "1 image "),
        ("c.csv", b"path,caption\n{root}/a.jpg,x\n", "", "absolute paths made relative: 1"),
        ("c.csv", b"path,caption\nimages/a.jpg,x\n", "", 'cut from paths: {"images/": 1}'),
        (
            "c.csv",
            b"path,caption\na.jpg,x\nz.jpg,x\nb.jpg,\n",
            "--skip-bad",
            '"image not found": 1',
        ),
        ("c.csv", b"path,caption\na.jpg,x\na.jpg,x\n", "", "duplicate lines left out: 1"),
    ],
)
def test_what_people_have(
    tmp_path: Path, images: Path, name: str, content: bytes, options: str, said: str
) -> None:
    source = tmp_path / name
    source.write_bytes(content.replace(b"{root}", str(images).encode()))
    start = ("folder", "--root", images, "--captions", source, "--out", tmp_path / "out")
    result = run(*start, *options.split())
    assert result.exit_code == 0, result.output
    assert said in result.stderr.splitlines()[-1]
    manifest = read_manifest(tmp_path / "out")
    assert [entry.file for entry in manifest.entries] == ["a.jpg"]
    assert (tmp_path / "out" / "left-out.csv").exists() == ("--skip-bad" in options)


def test_images_without_captions(tmp_path: Path, images: Path) -> None:
    result = run("folder", "--root", images, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "2 images (" in result.stderr
    assert "0 captions" in result.stderr
    assert [e.captions for e in read_manifest(tmp_path / "out").entries] == [(), ()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("scenes --num-images 2 --out x", "--num-images"),
        ("scenes --seed -1 --out x", "--seed"),
        ("scenes", "--out"),
        ("folder --out x", "--captions"),
        ("clips --root x --out x", "--captions"),
        ("folder --root x --out x --captions y --expect train", "SPLIT=COUNT"),
        ("folder --root x --out x --captions y --expect train=-1", "SPLIT=COUNT"),
        ("folder --root x --out x --captions y --expect a=1 --expect a=2", "named twice"),
        ("coco --root x --out x --captions val=", "[SPLIT=]FILE"),
        ("coco --root x --out x --captions y --split a/b", "not a plain name"),
        ("karpathy --root x --out x --captions y --restval no", "leave-out"),
    ],
)
def test_wrong_usage(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("x").exists()


@pytest.mark.parametrize(
    "command", ["", "scenes", "flickr8k", "coco", "karpathy", "folder", "entities", "regions"]
)
def test_help_has_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"pipeline prepare {command}" in result.stdout
    assert "Example" in result.stdout


def test_a_refused_source_leaves_the_old_dataset(tmp_path: Path, images: Path) -> None:
    source = tmp_path / "c.csv"
    source.write_text("path,caption\na.jpg,x\n")
    arguments = ("folder", "--root", images, "--captions", source, "--out", tmp_path / "out")
    run(*arguments)
    before = read_manifest(tmp_path / "out")
    source.write_text("path,caption\nz.jpg,x\n")
    result = run(*arguments)
    assert isinstance(result.exception, DatasetError)
    assert "line 2" in str(result.exception)
    assert read_manifest(tmp_path / "out") == before


def test_prepare_does_not_import_torch() -> None:
    code = "import sys, stages.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
