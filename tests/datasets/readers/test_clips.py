"""MSVD, MSR-VTT and TRECVID VTT: what is read, subsets that are asked for, faults by line."""

import json
from pathlib import Path

import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.msrvtt import read_msrvtt
from pipeline.datasets.readers.msvd import read_msvd
from pipeline.datasets.readers.trecvid_vtt import read_trecvid_vtt
from tests.project import SHARED

TINY_MSVD = {"train": 1, "val": 1, "test": 1}


def rows(manifest: Manifest) -> list[tuple[str, str, str, int]]:
    assert manifest.media == "clips"
    return [(e.id, e.file, e.split, len(e.captions)) for e in manifest.entries]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "clips").mkdir()
    for name in ("a_1_9.avi", "b_0_7.avi", "c_2_3.avi", "video0.mp4", "video7.mp4", "1.mp4"):
        (tmp_path / "clips" / name).touch()
    return tmp_path / "clips"


def test_msvd_from_its_own_files(root: Path, tmp_path: Path) -> None:
    text = '# comment\n\nc_2_3 a dog runs\na_1_9 a man\'s "hat"\nc_2_3  a  dog \nb_0_7 x\n'
    (tmp_path / "all.txt").write_text(text)
    (tmp_path / "map.txt").write_text("a_1_9 vid1301\nb_0_7 vid1300\nc_2_3 vid7\ngone vid8\n")
    found = read_msvd(root, tmp_path / "all.txt", mapping=tmp_path / "map.txt", expect=TINY_MSVD)
    assert rows(found) == [
        ("vid7", "c_2_3.avi", "train", 2),
        ("vid1300", "b_0_7.avi", "val", 1),
        ("vid1301", "a_1_9.avi", "test", 1),
    ]
    assert found.entries[0].captions == ("a dog runs", "a  dog")
    with pytest.raises(DatasetError, match="train: 1 found, 1200 expected"):
        read_msvd(root, tmp_path / "all.txt", mapping=tmp_path / "map.txt")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a_1_9.avi\tvid0\ttrain\tx", "line 3: vid0 is not a clip of MSVD"),
        ("a_1_9.avi\tvid1971\ttest\tx", "line 3: vid1971 is not a clip"),
        ("a_1_9.avi\t12\ttrain\tx", "line 3: '12' is not a clip number"),
        ("a_1_9.avi\tvid12\ttest\tx", "has split 'test'; its number makes it 'train'"),
        ("a_1_9.avi\tvid12\ttrain", "line 3: 3 fields found, 4 expected"),
        ("a_1_9.avi\tvid7\ttrain\tx", r"vid7 is 'a_1_9.avi' here and 'c_2_3.avi' in .*line 2"),
        ("../x.avi\tvid12\ttrain\tx", r"clip '../x.avi' leaves"),
        ("gone.avi\tvid12\ttrain\tx", r"line 3: clip 'gone.avi' not found .*`subset=True`"),
        ("a_1_9.avi\tvid12\ttrain\t ", "line 3: the caption is empty"),
    ],
)
def test_faults_of_msvd(root: Path, tmp_path: Path, line: str, message: str) -> None:
    table = "file\tid\tsplit\tcaption\nc_2_3.avi\tvid7\ttrain\tx\n"
    (tmp_path / "table.tsv").write_text(table + line + "\n")
    with pytest.raises(DatasetError, match=message):
        read_msvd(root, tmp_path / "table.tsv")


def test_a_subset_is_counted(root: Path, tmp_path: Path) -> None:
    table = "file\tid\tsplit\tcaption\nc_2_3.avi\tvid7\ttrain\tx\ngone.avi\tvid9\ttrain\tx\n"
    (tmp_path / "table.tsv").write_text(table)
    found = read_msvd(root, tmp_path / "table.tsv", subset=True)
    assert (found.counts, found.notes["clips_missing"]) == ({"train": 1}, 1)
    assert found.notes["clips_missing_first"] == ["gone.avi"]
    assert found.notes["subset_of"] == {"train": 1200, "val": 100, "test": 670}
    with pytest.raises(DatasetError, match="test: 0 found, 1 expected"):
        read_msvd(root, tmp_path / "table.tsv", subset=True, expect={"test": 1})
    (root / "c_2_3.mp4").touch()
    (tmp_path / "table.tsv").write_text("file\tid\tcaption\nc_2_3\tvid7\tx\n")
    with pytest.raises(DatasetError, match=r"may be c_2_3.avi or c_2_3.mp4"):
        read_msvd(root, tmp_path / "table.tsv", subset=True)


def test_real_clips_of_msvd() -> None:
    clips = SHARED / "data/clips"
    if not clips.is_dir():
        pytest.skip("needs ../shared/data/clips")
    found = read_msvd(clips / "msvd", clips / "msvd_captions.tsv", subset=True)
    assert found.counts == {"train": 7, "test": 4}
    assert (len(found.captions().texts), found.notes["clips_missing"]) == (406, 0)


def test_msrvtt(root: Path, tmp_path: Path) -> None:
    documents = {
        "one": {"videos": [{"video_id": "video7", "split": "validate"}], "sentences": []},
        "two": {
            "videos": [{"video_id": "video0", "split": "train"}],
            "sentences": [
                {"video_id": "video0", "caption": "x"},
                {"video_id": "video7", "caption": "y"},
                {"video_id": "video0", "caption": "z"},
            ],
        },
    }
    files = [tmp_path / f"{name}.json" for name in documents]
    for file, document in zip(files, documents.values(), strict=True):
        file.write_text(json.dumps(document))
    expect = {"train": 1, "val": 1, "test": 0}
    found = read_msrvtt(root, files, expect=expect)
    assert rows(found) == [("video7", "video7.mp4", "val", 1), ("video0", "video0.mp4", "train", 2)]
    with pytest.raises(DatasetError, match=r"clip 'video7' has no sentence"):
        read_msrvtt(root, files[:1], expect=expect)
    with pytest.raises(DatasetError, match=r"sentences\[1\]: clip 'video7' is not in any"):
        read_msrvtt(root, files[1:], expect=expect)
    with pytest.raises(DatasetError, match=r"videos\[0\]: duplicate clip 'video7'"):
        read_msrvtt(root, [*files, files[0]], expect=expect)


def test_trecvid_vtt(root: Path, tmp_path: Path) -> None:
    for name, text in (("A", "1    one in A\n2    two in A\n"), ("B", "1 one in B\n2 two in B\n")):
        (tmp_path / f"vines.textDescription.{name}.testingSet").write_text(text)
    (tmp_path / "vtt.gt").write_text("2 1 2\n1 2 1\n")
    found = read_trecvid_vtt(root, tmp_path, subset=True)
    assert rows(found) == [("1", "1.mp4", "test", 2)]
    assert found.entries[0].captions == ("two in A", "one in B")
    assert found.notes["clips_missing_first"] == ["2"]
    for truth, message in (
        ("1 2", "line 1: '1 2'; expected <clip>"),
        ("1 3 1", "line 1: set A has no sentence 3"),
        ("1 2 1\n2 2 2", r"line 2: sentence 2 of set A repeats .*line 1"),
        ("1 2 1", "test: 1 found, 1915 expected"),
    ):
        (tmp_path / "vtt.gt").write_text(truth)
        with pytest.raises(DatasetError, match=message):
            read_trecvid_vtt(root, tmp_path)
