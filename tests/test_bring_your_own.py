"""docs/bring_your_own.md: its four examples are short, and work together as a package."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.datasets.readers import READERS
from pipeline.heads.head_types import CaptionFeatures
from tests.project import PROJECT
from tests.test_guests import draw_photos, forget, install

PAGE = (PROJECT / "docs/bring_your_own.md").read_text(encoding="utf-8")
MODULES = dict(re.findall(r'```python title="(mine/\w+\.py)"\n(.*?)```', PAGE, re.DOTALL))


def write_package(folder: Path) -> Path:
    """Write the examples as a package, and what pip would record of its pyproject.toml."""
    (toml,) = re.findall(r"```toml [^\n]*\n(.*?)```", PAGE, re.DOTALL)
    points = toml[toml.index("[project.entry") :].replace("project.entry-points.", "")
    about = folder / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "entry_points.txt").write_text(points.replace('"', ""))
    (about / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (folder / "mine").mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    return folder


def test_the_examples_are_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(MODULES) == 4
    for name, text in MODULES.items():
        assert len([line for line in text.splitlines() if line]) <= 30, name
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, write_package(tmp_path / "site"))
    try:
        draw_photos(Path("photos"))
        READERS.get("lines")("photos").write("data")
        pipeline.extract("data", "images", recipe="patches-pool")
        pipeline.encode("data", "texts", encoder="letters+bow", pca=5)
        experiment = pipeline.resolve_experiment(
            "mine", head="least-squares", images="patches-pool", settings={"ridge": 0.5},
            captions=CaptionFeatures("texts", "letters"),
        )  # fmt: skip
        head = pipeline.fit(
            "data", "head", experiment=experiment, images="images", captions="texts"
        )
        assert head.plugin == "mine==1.0"
        captions = pipeline.load_encoder("texts.encoder").encode(["a red wall", "a blue wall"])
        np.testing.assert_array_equal(
            pipeline.load_head("head").embed_captions(captions), head.embed_captions(captions)
        )
    finally:
        for module in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            del sys.modules[module]
        forget()
