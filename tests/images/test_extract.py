"""The job and its command: the same defaults, the same bytes, the same refusals."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.images import network
from pipeline.images.concatenated_recipes import SideBySide, split_name
from pipeline.images.decoding.decode import source_crc32
from pipeline.images.extract import extract
from pipeline.images.recipes import RecipeError
from pipeline.store.errors import UnknownName, WrongUsage
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.verify import verify
from pipeline.store.workers.place import Place
from stages import extract as command
from tests.images.odd_files import photo
from tests.project import Recorder, contents
from tests.store.jobs.factories import options
from tests.store.workers.tasks import serial

LITE = "efficientnet-lite0-pool"


def prepared(folder: Path, files: Sequence[Path]) -> Path:
    """Return the folder of a dataset of these files, whose ids are their names."""
    entries = tuple(ImageEntry(path.name, path.name, "train", ("a thing",)) for path in files)
    manifest = Manifest("mine", files[0].parent, entries, "free", "drawn", {})
    manifest.write(folder / "dataset")
    return folder / "dataset"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Nine pictures, one of them damaged."""
    files = [tmp_path / "pictures" / f"{number}.png" for number in range(9)]
    files[0].parent.mkdir()
    for number, path in enumerate(files):
        photo(number, 100 + 20 * number, 90).save(path)
    files[4].write_bytes(b"damaged")
    return prepared(tmp_path, files)


def test_trusted_stamps_spare_reading_and_see_what_changed(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures with the size and time of their last reading are not opened again; others are."""
    read: list[str] = []

    def note(path: Path) -> int:
        read.append(path.name)
        return source_crc32(path)

    monkeypatch.setattr("pipeline.images.image_source.source_crc32", note)

    def run(trust: bool) -> list[str]:
        read.clear()
        extract(dataset, tmp_path / "out", recipe=LITE, **options(trust_stamps=trust, readers=1))
        return sorted(read)

    every = [f"{number}.png" for number in range(9)]
    assert run(True) == []  # nothing was finished before
    assert run(True) == []
    assert run(False) == every
    changed = tmp_path / "pictures" / "3.png"
    before = changed.stat()
    photo(77, 160, 90).save(changed)
    crc = FeatureSet(tmp_path / "out").source_crc32.copy()
    assert run(True) == ["3.png"]
    assert np.flatnonzero(FeatureSet(tmp_path / "out").source_crc32 != crc).tolist() == [3]
    assert run(True) == []
    # Another time, another set of shards, and a damaged record: all is read.
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert run(True) == ["3.png"]
    (record,) = (tmp_path / ".work").glob("out.stamps")
    record.write_bytes(b"damaged")
    assert run(True) == every
    (tmp_path / "pictures" / "5.png").unlink()
    assert run(True) == ["5.png"]


def test_wrong_names_are_refused_before_any_work(dataset: Path, tmp_path: Path) -> None:
    for arguments in ({"recipe": "efficientnet"}, options(recipe=LITE, engine="fats")):
        with pytest.raises((UnknownName, RecipeError), match=r"did you mean|fast, reference"):
            extract(dataset, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
    with pytest.raises(WrongUsage, match="not both"):
        extract(dataset, tmp_path / "out", recipe=LITE, **options(workers=1, scheduler="tcp://x:1"))


def test_recipes_side_by_side_are_extracted_each_and_not_written_again(
    dataset: Path, tmp_path: Path
) -> None:
    features, flip = tmp_path / "features", f"{LITE}-flip"
    index = extract(dataset, features / "both", recipe=f"{LITE}+{flip}")
    assert [path.name for path in (features / "both").iterdir()] == ["side-by-side.json"]
    assert (index.rows, index.failed_rows, index.header.row_shape) == (9, 1, (2560,))
    assert verify(features / "both").faults == []
    ids = [image_id for image_id in FeatureSet(features / LITE).ids if image_id != "4.png"]
    rows = [FeatureSet(features / name).read(ids) for name in (LITE, flip)]
    units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in rows]
    both = FeatureSet(features / "both")
    np.testing.assert_allclose(both.read(ids), np.concatenate(units, axis=1), rtol=1e-5)
    photo(3, 70, 70).save(tmp_path / "pictures" / "0.png")
    again = extract(dataset, features / "both", recipe=f"{LITE}+{flip}")
    assert again.header.recipe_hash == index.header.recipe_hash
    assert again.content_sha256 != index.content_sha256
    changed = FeatureSet(features / "both").read(ids) != both.read(ids)
    assert changed.any(axis=1).tolist() == [True, *[False] * 7]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a+timm:b@c", SideBySide(("a", "timm:b@c"), "unit")),
        ("none:timm:b+a", SideBySide(("timm:b", "a"), "none")),
        ("timm:b", None),
    ],
)
def test_names_of_recipes_side_by_side(name: str, found: SideBySide | None) -> None:
    assert split_name(name) == found
    for wrong in ("a+", "a+b+a", "unit:a", "none:"):
        with pytest.raises(RecipeError, match="at least two different ones"):
            split_name(wrong)


def test_a_network_that_runs_as_it_was_written_is_logged(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm", reason="needs the extra [timm]")
    monkeypatch.setattr(network, "rewrite", lambda net, *given: net)
    monitor = Recorder()
    settings = options(recipe="timm:test_vit", weights="random:0", limit=1)
    extract(dataset, tmp_path / "out", monitor=monitor, **settings)
    cause = "runs without the fast engine's fused layers: it cannot be traced"
    assert f"timm:test_vit.r160_in1k {cause}" in monitor.lines


def test_a_plain_folder_gives_the_rows_of_a_dataset(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is prepared; rows and ids are those of a prepared dataset, and no path is stored."""
    pictures, out = tmp_path / "pictures", tmp_path / "plain"
    (pictures / "readme.md").write_text("no image")
    arguments = ["--backbone", "efficientnet-lite0", "--out", str(out), "--images", str(pictures)]
    ended = CliRunner().invoke(command.extract, arguments, catch_exceptions=False)
    assert ended.exit_code == 3
    assert "9 images below" in ended.stderr
    assert "1 files of other kinds" in ended.stderr
    assert "failed: 4.png: unreadable" in ended.stderr
    index = extract(dataset, tmp_path / "prepared", recipe=LITE)
    plain, known = FeatureSet(out), FeatureSet(tmp_path / "prepared")
    assert index.header.dataset == "mine"
    assert plain.index.header.dataset == "pictures"
    assert list(plain.ids) == list(known.ids)
    np.testing.assert_array_equal(plain.crc32, known.crc32)
    np.testing.assert_array_equal(plain.source_crc32, known.source_crc32)
    assert (index.rows, index.failed_rows) == (9, 1)
    assert not any(str(tmp_path).encode() in data for data in contents(out).values())
    # The same from Python, from a list of files, and as tasks of workers.
    extract([pictures / f"{k}.png" for k in range(9)], tmp_path / "listed", recipe=LITE)
    monkeypatch.setattr(Place, "executor", lambda *_: nullcontext(serial))
    extract(str(pictures), tmp_path / "spread", recipe=LITE, place=Place(workers=2))
    assert contents(out) == contents(tmp_path / "listed") == contents(tmp_path / "spread")


def test_a_list_of_images_is_read_from_a_file_or_stdin(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("pictures/2.png\npictures/absent.png\n")
    arguments = ["--recipe", LITE, "--out", "out", "--images", "list.txt", "pictures/1.png"]
    ended = CliRunner().invoke(command.extract, arguments, catch_exceptions=False)
    assert ended.exit_code == 3
    assert list(FeatureSet(tmp_path / "out").ids) == ["2.png", "absent.png", "1.png"]
    assert "failed: absent.png: missing" in ended.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "pass either --dataset DIR, a prepared dataset, or --images FOLDER"),
        (["--dataset", "d", "--images", "d"], "pass either --dataset"),
        (["--images", "nowhere"], "nowhere does not exist"),
        (["--images", ".", "--split", "test"], "--split requires a prepared dataset"),
        (["--images", ".", "--regions", "r"], "--regions requires a prepared dataset"),
        (["--dataset", "d", "a.jpg"], "a.jpg is not an option; image files follow --images"),
    ],
)
def test_images_and_a_dataset_exclude_each_other(given: list[str], message: str) -> None:
    arguments = ["--recipe", LITE, "--out", "x", *given]
    ended = CliRunner().invoke(command.extract, arguments)
    assert ended.exit_code == 2
    assert message in " ".join(ended.stderr.split())
