"""`pipeline compare`: all seeds of a name, ensembles, and what is missing."""

import json
from pathlib import Path

import pytest

from pipeline.regions.localization.localized import write_localized
from tests.project import Call
from tests.regions.localization.factories import localized
from tests.retrieval.factories import noisy, written


def test_the_command_takes_all_seeds_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("data/embeddings/mine")
    written(folder, "a", noisy(40, 0.5, 1))
    written(folder, "a-seed1", noisy(40, 0.5, 2))
    # Of another experiment, and no seed.
    written(folder, "a-seedling", noisy(40, 9.0, 3))
    written(Path("data/ensembles/mine"), "b", noisy(40, 2.0, 4))
    found = pipeline("compare", "a", "b", "--dataset", "data/mine")
    assert found.status == 0, found.stderr
    first, *_, last = found.stdout.splitlines()
    assert first.startswith("a: rsum")
    assert "mean of" in first
    assert last.endswith("over 40 images: too few images to decide")
    lost = pipeline("compare", "a", "c", "--dataset", "data/mine")
    assert lost.status != 0
    assert "data/embeddings/mine/c.h5" in lost.stderr


def test_files_need_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    """In a folder without params.yaml, with any figure, as text and as JSON."""
    monkeypatch.chdir(tmp_path)
    files = [str(written(tmp_path, name, noisy(60, noise, 1)))
             for name, noise in (("a", 0.5), ("b", 2.0))]  # fmt: skip
    found = pipeline("compare", *files, "--measure", "text_to_image_mean_rank", "--json")
    assert found.status == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer["kind"] == "embeddings"
    (row,) = answer["measures"]
    assert row["difference"] == row["first"][0] - row["second"][0] < 0
    assert row["verdict"] == "decided"
    named = pipeline("compare", "a", "b")
    assert named.status == 2
    assert "--dataset DIR" in named.stderr
    few = [str(written(tmp_path, name, noisy(4, noise, 1)))
           for name, noise in (("c", 0.1), ("d", 9.0))]  # fmt: skip
    assert "no 95 % interval of so few images" in pipeline("compare", *few).stdout


def test_localizations_are_recognised_by_name_and_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("data/localizations/mine")
    folder.mkdir(parents=True)
    for name in ("p", "q"):
        write_localized(folder / f"{name}.h5", localized(images=8))
    found = pipeline("compare", "p", "q", "--dataset", "data/mine")
    assert found.status == 0, found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("p: phrases R@1")
    assert lines[8].startswith("phrases mAP: difference +0.0")
    assert pipeline("compare", str(folder / "p.h5"), str(folder / "q.h5")).stdout.count("mAP") == 3
    mixed = written(Path("data/embeddings/mine"), "e", noisy(8, 1.0, 1))
    refused = pipeline("compare", str(folder / "p.h5"), str(mixed))
    assert refused.status == 1
    assert "only files of one kind can be compared" in refused.stderr


def test_a_list_of_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Call) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("good", "good-seed1", "poor")):
        written(Path("data/embeddings/mine"), name, noisy(60, 2.5 if name == "poor" else 0.5, seed))
    claim = {"name": "a", "claim": "good is better", "first": "good", "second": "poor",
             "figures": [{"measure": "rsum"}]}  # fmt: skip
    file = tmp_path / "mine.json"
    file.write_text(
        json.dumps({"format": "pipeline-claims", "format_version": 1, "claims": [claim]})
    )
    asked = ("compare", "--claims", str(file), "--dataset", "data/mine", "--out", "out")
    found = pipeline(*asked, "--json")
    assert found.status == 0, found.stderr
    (row,) = json.loads(found.stdout)["claims"]
    assert (row["outcome"], row["one_training"]) == ("holds", True)
    assert len(row["comparison"]["first"]) == 2
    assert pipeline(*asked).stdout == (tmp_path / "out/claims.md").read_text()
    assert pipeline("compare", "good", "poor", "--claims", str(file)).status == 2
    assert pipeline("compare", "good").status == 2
