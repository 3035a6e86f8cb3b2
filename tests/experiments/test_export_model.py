"""Programs of an experiment: compared with its embedding file, replaced as a whole, repeated."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pipeline
from pipeline.experiments import export_model as job
from pipeline.experiments.layout import NotMade
from pipeline.heads import HeadError
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.store.errors import WrongUsage
from tests.images.networks import narrow
from tests.project import Recorder

RIDGE, WORDS = "qian2018-baseline", "vsepp"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with drawn scenes in `data/mine`, and two experiments on them."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(BACKBONES, narrow.NAME, narrow.NARROW)
        pipeline.draw_scenes("data/mine", 24, seed=0).write("data/mine")
        pipeline.run([RIDGE, WORDS], "data/mine", size="tiny")
        yield folder


def export(name: str, out: str = "programs", **options: Any) -> tuple[dict[str, float], list[str]]:
    """Return the differences of an experiment's programs, and the log lines."""
    recorder = Recorder()
    found = pipeline.export_model(name, "data/mine", out, monitor=recorder, **options)
    return found, recorder.lines


def bytes_in(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_programs_have_the_rows_of_the_embedding_file(made: Path) -> None:
    differences, lines = export(WORDS)
    assert [*differences] == ["image", "caption", "photo"]
    assert 0 < max(differences.values()) < 1e-5
    assert [line.split(":")[0] for line in lines] == ["image.pt2", "caption.pt2", "photo.pt2"]
    layout = pipeline.Layout(Path("data/mine"))
    space = pipeline.read_embeddings(layout.embeddings(WORDS))
    ids = pipeline.read_features(layout.text("token-ids")).read([*space.caption_ids])
    program = torch.export.load(Path("programs/caption.pt2")).module()
    found = program(torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(found, space.caption_embeddings, atol=1e-6)
    about = json.loads(Path("programs/export.json").read_text())
    photo = about["programs"]["photo.pt2"]
    assert photo["input"] == {"name": "windows", "shape": ["n", 1, 224, 224, 3], "dtype": "uint8"}
    assert photo["output"]["shape"] == ["n", space.image_embeddings.shape[1]]
    head = json.loads((layout.head(WORDS) / "head.json").read_text())
    assert about["head"]["tensors_sha256"] == head["tensors_sha256"]
    assert (about["similarity"], about["format"]) == ("cosine", "torch")


def test_the_same_call_has_the_same_bytes_and_replaces_programs_alone(made: Path) -> None:
    export(RIDGE, "again")
    first = bytes_in("again")
    Path("again/notes.txt").write_text("mine")
    Path("again/caption.onnx").write_text("of another format")
    export(RIDGE, "again")
    assert bytes_in("again") == {**first, "notes.txt": b"mine"}


def test_onnx_has_the_same_rows(made: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: extra onnx")
    differences, _ = export(RIDGE, to="onnx")
    assert max(differences.values()) < 1e-5
    assert "opset" in json.loads(Path("programs/export.json").read_text())


def test_without_its_network_an_experiment_has_no_photo(made: Path) -> None:
    (differences, lines) = export(RIDGE, "sides", weights="random:1")
    assert [*differences] == ["image", "caption"]
    assert lines[0].startswith("photo.pt2 is left out: the recipe 'efficientnet-lite0-pool' with")
    assert export(RIDGE, "sides", without_photo=True)[0] == differences
    assert {*bytes_in("sides")} == {"image.pt2", "caption.pt2", "export.json"}


def test_what_differs_is_not_written(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(RIDGE, "kept", without_photo=True)
    before = bytes_in("kept")
    monkeypatch.setattr(job, "TOLERANCE", -1.0)
    with pytest.raises(HeadError, match=r"image\.pt2 was not written: its rows differ from those"):
        export(RIDGE, "kept", without_photo=True)
    assert bytes_in("kept") == before
    assert [path.name for path in Path(".work").iterdir() if path.name.startswith("kept")] == [
        "kept.lock"
    ]


def test_refusals(made: Path) -> None:
    for options, error, message in (
        ({"to": "keras"}, WrongUsage, "no program has the format 'keras'; expected torch or onnx"),
        ({"name": "vse0"}, NotMade, "run `pipeline run vse0 --dataset data/mine`"),
        ({"name": "wang2016-phrases-cca"}, WrongUsage, "regions and phrases"),
        ({"name": "vsep"}, HeadError, "did you mean"),
    ):
        with pytest.raises(error, match=message):
            export(**{"name": RIDGE, "out": "refused", **options})
    layout = pipeline.Layout(Path("data/mine"))
    shutil.copy(layout.embeddings(RIDGE), "stored.h5")
    try:
        pipeline.embed(
            "data/mine",
            layout.embeddings(RIDGE),
            head=layout.head(RIDGE),
            images=layout.features("efficientnet-lite0-pool"),
            captions=layout.text("mean-glove-6b-50d"),
            stored=pipeline.Stored("float16"),
        )
        with pytest.raises(HeadError, match=r"store is float16, expected float32.*`pipeline run"):
            export(RIDGE, "refused")
    finally:
        shutil.copy("stored.h5", layout.embeddings(RIDGE))
    assert not Path("refused").exists()
