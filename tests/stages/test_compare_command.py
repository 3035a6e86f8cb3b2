"""`pipeline compare`: all seeds of a name, ensembles, and what is missing."""

from pathlib import Path

import pytest

from tests.project import Call
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
