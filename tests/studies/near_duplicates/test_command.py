"""`pipeline duplicates` and `evaluate --leaks`: output, exit status, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import pipeline
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.retrieval.embeddings import Embeddings
from pipeline.store.shards.feature_set import MissingRows
from pipeline.studies.near_duplicates.confirmed import LEAST_CORRELATION
from pipeline.studies.near_duplicates.leaks import find_leaks
from stages.cli import cli

RECIPE = {"name": "other"}
IDS = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
ROWS = np.array([[1, 0, 0], [0, 1, 0], [1, 0.1, 0], [0, 0, 1], [np.nan] * 3], np.float32)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of five images, the last of which has no features; a and c are near."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name in IDS:
        seed = 0 if name in ("a.jpg", "c.jpg") else ord(name[0])
        noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(noise).resize((60, 40)).save(Path("photos") / name)
    splits = ("train", "train", "test", "test", "test")
    entries = [ImageEntry(i, i, s, ("a",)) for i, s in zip(IDS, splits, strict=True)]
    Manifest("mine", tmp_path / "photos", entries, "CC0", "drawn", {}).write("data")
    pipeline.write_features(
        "features", IDS, ROWS, recipe=RECIPE, status=[0, 0, 0, 0, 1], errors=[""] * 4 + ["bad"]
    )
    return tmp_path


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["duplicates", "features", *arguments])


@pytest.mark.usefixtures("made")
def test_a_table_a_page_and_a_status() -> None:
    options = ("--threshold", "0.9", "--dataset", "data", "--between")
    result = ran(*options, "--page", "leaks.html", "--fail")
    assert result.exit_code == 3, result.output
    assert result.stdout.splitlines() == [
        "group  score   id     split  nearest",
        "1      0.9950  a.jpg  train  c.jpg",
        "1      0.9950  c.jpg  test   a.jpg",
    ]
    assert "1 group of 2 images at cosine 0.9 or more among 4 rows, 1 without" in result.stderr
    text = Path("leaks.html").read_text(encoding="utf-8")
    assert text.count("data:image/jpeg") == 2
    assert ran(*options).exit_code == 0
    none = ran("--threshold", "0.999", "--fail")
    assert (none.exit_code, none.stdout) == (0, "")


@pytest.mark.usefixtures("made")
def test_results_as_json() -> None:
    found = json.loads(ran("--threshold", "0.9", "--json").stdout)
    image = {"id": "a.jpg", "features": "features", "split": "", "nearest": "c.jpg"}
    assert found == {
        "threshold": 0.9,
        "correlation": None,
        "compared": 4,
        "failed": 1,
        "recall": None,
        "groups": [
            {
                "score": 0.995037,
                "images": [
                    {**image, "score": 0.995037},
                    {**image, "id": "c.jpg", "nearest": "a.jpg", "score": 0.995037},
                ],
            }
        ],
    }
    pipeline.write_features("b", IDS[:1], ROWS[:1], recipe=RECIPE)
    table = ran("b", "--threshold", "0.9", "--dataset", "photos", "--dataset", "photos").stdout
    assert table.splitlines()[0].split() == ["group", "score", "id", "features", "nearest"]
    assert len(table.splitlines()) == 4


@pytest.mark.usefixtures("made")
def test_wrong_usage_has_a_message() -> None:
    for arguments, text in (
        (("--between", "--threshold", "0.9"), "need --dataset"),
        ((), "no threshold is calibrated"),
        (("--dataset", "data", "--dataset", "data"), "once for each feature set"),
        (("--page", "a.html", "--threshold", "0.9"), "--page requires --dataset"),
        (("--split", "tset", "--dataset", "data", "--threshold", "0.9"), "no split 'tset'"),
    ):
        result = ran(*arguments)
        assert text in str(result.exception), arguments


@pytest.mark.usefixtures("made")
def test_evaluate_counts_ranked_images_with_near_duplicates() -> None:
    kept = ["c.jpg", "d.jpg"]
    rows = np.eye(2, dtype=np.float32)
    captions = [f"{image}#0" for image in kept]
    embeddings = Embeddings(kept, rows, captions, kept, rows, "cosine", {})
    pipeline.write_embeddings(Path("test.h5"), embeddings)
    found = find_leaks(kept, "features", threshold=0.9)
    assert [(image.id, image.split) for image in found.images] == [
        ("a.jpg", "others"), ("c.jpg", "ranked")
    ]  # fmt: skip
    with pytest.raises(MissingRows):
        find_leaks(["z.jpg"], "features", threshold=0.9)
    # Features of a recipe with a calibrated threshold, so that the command needs none.
    pipeline.extract("data", "thumbnails", recipe="dct-thumbnail")
    result = CliRunner().invoke(
        cli, ["evaluate", "test.h5", "--out", "out", "--leaks", "thumbnails"]
    )
    assert result.exit_code == 0, result.output
    expected = "leaks: 1 of 2 ranked images have a near-duplicate among the 3 others of thumbnails "
    assert expected + "(cosine 0.7 or more), first c.jpg" in result.stderr
    aligned = find_leaks(kept, "thumbnails", images="data")
    assert (aligned.correlation, len(aligned.images)) == (LEAST_CORRELATION, 2)
    options = ["--leaks", "thumbnails", "--leaks-images", "data"]
    result = CliRunner().invoke(cli, ["evaluate", "test.h5", "--out", "out", *options])
    assert "(cosine 0.5 or more, pixels aligned), first c.jpg" in result.stderr
    result = CliRunner().invoke(cli, ["evaluate", "test.h5", "--out", "out", *options[2:]])
    assert "--leaks-images needs --leaks" in str(result.exception)
