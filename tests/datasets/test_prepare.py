"""`pipeline prepare`: what is logged of a user's own data, wrong usage, and refused sources."""

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


@pytest.mark.parametrize(
    ("name", "content", "options", "logged"),
    [
        ("c.csv", b"path;caption\na.jpg;x\n", "", 'separator: "semicolon"'),
        ("c.csv", b"path,caption\na.jpg,\x80\n", "--encoding cp1252", 'encoding: "cp1252"'),
        ("c.csv", b"image,text\na.jpg,x\n", "", 'recognised: {"path": ["image"], "caption":'),
        ("metadata.jsonl", b'{"file_name": "a.jpg", "text": "x"}\n', "", "columns recognised"),
        ("c.csv", b"x,y\na.jpg,x\n", "--path-column x --caption-column y", '"path": ["x"]'),
        ("c.csv", b"path,caption\n{root}/a.jpg,x\n", "", "absolute paths made relative: 1"),
        ("c.csv", b"path,caption\nimages/a.jpg,x\n", "", 'cut from paths: {"images/": 1}'),
        ("c.csv", b"path,caption\na.jpg,x\nz.jpg,x\n", "--skip-bad", '"image not found": 1'),
        ("c.csv", b"path,caption\na.jpg,x\na.jpg,x\n", "", "equal to others of their image: 1"),
    ],
)
def test_notes_are_logged(
    tmp_path: Path, images: Path, name: str, content: bytes, options: str, logged: str
) -> None:
    source = tmp_path / name
    source.write_bytes(content.replace(b"{root}", str(images).encode()))
    start = ("folder", "--root", images, "--captions", source, "--out", tmp_path / "out")
    result = run(*start, *options.split())
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert logged in result.stderr.splitlines()[-1]
    manifest = read_manifest(tmp_path / "out")
    assert [entry.file for entry in manifest.entries] == ["a.jpg"]
    assert (tmp_path / "out" / "left-out.csv").exists() == ("--skip-bad" in options)


def test_clips_are_prepared_as_images(tmp_path: Path, images: Path) -> None:
    (images / "a.jpg").rename(images / "a.mp4")
    (tmp_path / "c.csv").write_text("path,caption,split\na.mp4,x,train\na.mp4,y,train\n")
    start = ("clips", "--root", images, "--out", tmp_path / "out", "--captions", tmp_path / "c.csv")
    result = run(*start, "--expect", "train=1")
    assert "1 clip (train 1), 2 captions in " in result.stderr, result.output
    assert read_manifest(tmp_path / "out").media == "clips"
    (images / "a.mp4").unlink()
    assert "(clip not found: 2, of 1 file): line 2 and 1 more: clip 'a.mp4'" in str(
        run(*start).exception
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("scenes --num-images 2 --out x", "--num-images"),
        ("scenes", "--out"),
        ("folder --out x", "--captions"),
        ("clips --root x --out x", "--captions"),
        ("folder --root x --out x --captions y --expect train", "SPLIT=COUNT"),
        ("folder --root x --out x --captions y --expect train=-1", "SPLIT=COUNT"),
        ("coco --root x --out x --captions y --expect a=1 --expect a=2", "named twice"),
        ("coco --root x --out x --captions val=", "[SPLIT=]FILE"),
        ("coco --root x --out x --captions y --split a/b", "not a plain name"),
        ("karpathy --root x --out x --captions y --restval no", "leave-out"),
        ("flickr8k --root x --out x --captions-per-image 0", "--captions-per-image"),
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


def test_options_of_a_reader_reach_it(tmp_path: Path, images: Path) -> None:
    document = '{"images": [{"id": 1, "file_name": "%s.jpg"}], "annotations": [{"id": 1, '
    for name in "ab":
        text = document % name + '"image_id": 1, "caption": "x"}]}'
        (tmp_path / f"{name}.json").write_text(text.replace("1", "12" if name == "a" else "1"))
    (images / "sub").mkdir()
    (images / "b.jpg").rename(images / "sub/b.jpg")
    start = ("coco", "--root", images, "--out", tmp_path / "out")
    result = run(
        *start, "--captions", tmp_path / "a.json", "--captions", f"train={tmp_path}/b.json",
        "--split", "dev", "--folder", "train=sub", "--expect", "dev=1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "out")
    assert manifest.counts == {"dev": 1, "train": 1}
    assert manifest.entries[1].file == "sub/b.jpg"


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
