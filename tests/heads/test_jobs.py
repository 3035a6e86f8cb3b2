"""Fitting and embedding from Python: folders in, a head and an embedding file out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.heads import HeadError
from pipeline.heads.embed import Stored, embed, require_head_of
from pipeline.heads.fit import fit
from pipeline.heads.head_types import Experiment
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.retrieval.csls import Reference
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.quantised.codes import QuantisedRows, StoreError, shortened
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.ranking.splits import of_split
from pipeline.store import devices
from pipeline.store.devices import DeviceError
from pipeline.store.errors import WrongUsage
from pipeline.store.jobs.options import Selection
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.workers.place import Place
from tests.heads.factories import all_of, entries_of, pairs, write_features
from tests.project import Recorder, contents

EXPERIMENT = Experiment(
    "made", "two-branch", {"hidden": 8, "dim": 4, "epochs": 3, "batch_size": 20}
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset and the features of both sides; relative paths as text."""
    monkeypatch.chdir(tmp_path)
    splits = {name: pairs(30, seed=seed) for seed, name in enumerate(("train", "val", "test"))}
    entries = [
        replace(entry, split=split)
        for split, found in splits.items()
        for entry in entries_of(found)
    ]
    Manifest("made", tmp_path, tuple(entries), "", "drawn here", {}).write(Path("dataset"))
    for side in ("images", "captions"):
        rows = np.concatenate([all_of(getattr(found, side)) for found in splits.values()])
        ids = [name for e in entries for name in ((e.id,) if side == "images" else e.caption_ids)]
        write_features(Path(side), ids, rows)


def fitted(out: str, experiment: Experiment = EXPERIMENT, **options: Any) -> TrainedHead:
    sides = {"images": "images", "captions": "captions"}
    training = TrainingOptions(**options)
    return fit("dataset", out, experiment=experiment, training=training, **sides)


def embedded(out: str, **options: Any) -> Embeddings:
    sides = {"images": "images", "captions": "captions"}
    return embed("dataset", out, **{"head": "head", **sides, **options})


def test_an_interrupted_fit_raises_and_goes_on(data: None) -> None:
    monitor = Recorder()
    whole = fitted("whole", monitor=monitor)
    assert [step[2] for step in monitor.steps] == [0, 1, 2, 3]
    assert monitor.steps[-1] == ("made", "epoch", 3, 3, 0)
    assert [line.split(":")[0] for line in monitor.lines] == ["train", "val"]
    assert load_head("whole").provenance == whole.provenance
    assert whole.chosen in whole.history

    monitor = Recorder(interrupt_at=2)
    with pytest.raises(KeyboardInterrupt):
        fitted("halves", monitor=monitor)
    work = Path.cwd() / ".work" / "train-halves"
    assert monitor.lines[-1].startswith(f"interrupted: 2 epochs are kept in {work};")
    monitor = Recorder()
    fitted("halves", monitor=monitor)
    assert monitor.lines[-1] == f"resuming from {work} after epoch 2 of 3"
    assert contents(Path("halves")) == contents(Path("whole"))
    assert not work.exists()


def test_the_precision_is_recorded_where_it_is_not_float32(
    data: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "fast_bf16", lambda device: True)
    record = Recorder()
    for precision, out in (("bf16", "low"), ("auto", "auto"), ("float32", "exact"), (None, "none")):
        fitted(out, precision=precision, monitor=record)
    fitted("own", replace(EXPERIMENT, precision="bf16"))
    assert [line for line in record.lines if "precision" in line] == ["precision: bf16 on cpu"]
    assert contents(Path("low")) == contents(Path("auto")) == contents(Path("own"))
    assert contents(Path("exact")) == contents(Path("none"))
    assert contents(Path("low"))["head.safetensors"] != contents(Path("exact"))["head.safetensors"]
    low, exact = load_head("low"), load_head("exact")
    assert (low.precision, exact.precision) == ("bf16", "float32")
    assert low.provenance == {**low.provenance, "precision": "bf16"}
    assert "precision" not in json.loads(contents(Path("exact"))["head.json"])
    assert "precision" not in exact.provenance
    assert embedded("low.h5", head="low").provenance["precision"] == "bf16"


def test_a_device_without_fast_bf16_is_refused(data: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "fast_bf16", lambda device: False)
    with pytest.raises(DeviceError, match="device 'cpu' has no fast products of bfloat16"):
        fitted("low", precision="bf16")
    record = Recorder()
    assert fitted("auto", precision="auto", monitor=record).precision == "float32"
    assert "precision: float32 on cpu" in record.lines


def test_a_split_is_embedded_into_a_file(data: None) -> None:
    trained = fitted("head")
    monitor = Recorder()
    found = embedded("one.h5", monitor=monitor)
    assert [s for s in monitor.steps if s[2:4] in ((30, 30), (90, 90))][-1][:2] == ("made", "row")
    stored = read_embeddings(Path("one.h5"))
    np.testing.assert_array_equal(stored.image_embeddings, found.image_embeddings)
    test = pairs(30, seed=2)
    assert found.image_ids == test.image_ids
    np.testing.assert_allclose(
        found.image_embeddings, trained.embed_images(all_of(test.images)), atol=1e-6
    )
    assert stored.provenance["split"] == "test"
    embedded("again.h5")
    assert Path("again.h5").read_bytes() == Path("one.h5").read_bytes()


def test_a_small_file_is_calibrated_on_the_training_split(data: None) -> None:
    fitted("head")
    whole = embedded("whole.h5")
    small = embedded("small.h5", stored=Stored("binary", dim=3))
    assert isinstance(small.image_embeddings, QuantisedRows)
    rows = shortened(whole.image_embeddings, 3, "cosine")
    assert np.abs(small.image_embeddings[:] - rows).max() < 0.05
    train = embedded("train.h5", select=Selection("train"))
    calibration = small.image_embeddings.quantiser
    assert calibration.calibrated_on == {"split": "train", "images": 30, "captions": 90}
    of_training = shortened(train.caption_embeddings, 3, "cosine")
    assert np.allclose(calibration.middles["captions"], of_training.mean(axis=0), atol=1e-6)
    assert read_embeddings("small.h5").provenance["dim"] == 3
    embedded("again.h5", stored=Stored("binary", dim=3))
    assert Path("again.h5").read_bytes() == Path("small.h5").read_bytes()
    with pytest.raises(StoreError, match="expected 1 to 4, the vectors' dimensions"):
        embedded("small.h5", stored=Stored(dim=5))


def test_cosines_are_corrected_by_the_training_split(data: None) -> None:
    fitted("head")
    plain, train = embedded("plain.h5"), embedded("train.h5", select=Selection("train"))
    found = embedded("found.h5", stored=Stored("float16", csls=True))
    assert (found.similarity, found.provenance["csls"]) == ("dot", "train")
    assert "csls" not in plain.provenance
    reference = Reference(train.image_embeddings, train.caption_embeddings)
    images = reference.extended(plain.image_embeddings, "images")
    np.testing.assert_allclose(found.image_embeddings[:], images, atol=1e-3)
    short = embedded("short.h5", stored=Stored(dim=3, csls=True))
    of_three = Reference(
        *(
            shortened(rows, 3, "cosine")
            for rows in (train.image_embeddings, train.caption_embeddings)
        )
    ).extended(shortened(plain.caption_embeddings, 3, "cosine"), "captions")
    np.testing.assert_allclose(short.caption_embeddings, of_three, atol=1e-6)
    # Rows of a file with corrections are not those of one without.
    assert embedded("found.h5").similarity == "cosine"
    assert Path("found.h5").read_bytes() == Path("plain.h5").read_bytes()
    with pytest.raises(StoreError, match="needs rows stored as float32 or float16, not as int8"):
        embedded("found.h5", stored=Stored("int8", csls=True))
    fitted("head", Experiment("made", "ridge"))
    with pytest.raises(StoreError, match="corrects cosines, but the head's similarity is euclid"):
        embedded("found.h5", stored=Stored(csls=True))
    assert Path("found.h5").read_bytes() == Path("plain.h5").read_bytes()


def test_without_training_features_the_embedded_rows_are_measured(data: None) -> None:
    fitted("head")
    test = read_manifest(Path("dataset")).split("test")
    sides = {
        "images": [entry.id for entry in test],
        "captions": [name for entry in test for name in entry.caption_ids],
    }
    for side, ids in sides.items():
        write_features(Path(f"test-{side}"), ids, FeatureSet(Path(side)).read(ids))
    monitor = Recorder()
    found = embedded("t.h5", stored=Stored("int8"), monitor=monitor, images="test-images",
                     captions="test-captions")  # fmt: skip
    assert isinstance(found.image_embeddings, QuantisedRows)
    assert found.image_embeddings.quantiser.calibrated_on["split"] == "embedded"
    assert any("not on split train" in line for line in monitor.lines)


def test_several_splits_are_embedded_one_after_the_other(data: None) -> None:
    fitted("head")
    test = embedded("test.h5")
    whole = embedded("all.h5", select=Selection("all"))
    splits = ("train", "val", "test")
    assert list(whole.image_ids) == [f"{k}-{i}" for k in range(3) for i in range(30)]
    assert whole.provenance["split"] == "all"
    assert whole.provenance["splits"] == [[split, 30] for split in splits]
    some = embedded("some.h5", select=Selection("test,train"))
    assert some.provenance["splits"] == [["test", 30], ["train", 30]]
    # Each row is that of the single split, whatever stands next to it.
    for found in (of_split(whole, "test"), of_split(some, "test")):
        assert found.image_ids == test.image_ids
        assert list(found.caption_ids) == list(test.caption_ids)
        np.testing.assert_allclose(found.image_embeddings, test.image_embeddings, atol=1e-6)
        assert found.provenance == test.provenance
        tables = [recall_table(e) for e in (found, test)]
        assert tables[0] == tables[1]
    assert embedded("one.h5", select=Selection("val")).provenance["split"] == "val"
    with pytest.raises(DatasetError, match="no split 'dev'"):
        embedded("none.h5", select=Selection("train,dev"))


def test_images_without_captions_are_embedded_alone(data: None) -> None:
    fitted("head")
    manifest = read_manifest("dataset")
    few = [e if e.id.endswith("3") else replace(e, captions=()) for e in manifest.select("test")]
    Manifest("few", Path.cwd(), few, "", "", {}).write("few")
    monitor = Recorder()
    sides: dict[str, Any] = {"head": "head", "images": "images"}
    found = embed("few", "few.h5", captions="captions", monitor=monitor, **sides)
    assert "27 of 30 images have no caption" in monitor.lines
    assert [len(found.image_ids), len(found.query_ids), len(found.caption_ids)] == [30, 3, 9]
    whole = embedded("whole.h5")
    np.testing.assert_allclose(found.image_embeddings, whole.image_embeddings, atol=1e-6)
    with pytest.raises(HeadError, match="no caption features are passed"):
        embed("few", "none.h5", captions=None, **sides)
    none = [replace(entry, captions=()) for entry in few]
    Manifest("none", Path.cwd(), none, "", "", {}).write("none")
    # Features of captions are not even opened.
    for captions in (None, "nowhere"):
        found = embed("none", "none.h5", captions=captions, **sides)
        assert read_embeddings(Path("none.h5")).image_ids == found.image_ids
        assert (len(found.image_ids), len(found.caption_ids)) == (30, 0)
        assert "captions_sha256" not in found.provenance
        np.testing.assert_allclose(found.image_embeddings, whole.image_embeddings, atol=1e-6)
    assert not list(Path(".work").glob("*.h5-*"))


def test_training_without_captions_names_the_remedy(data: None) -> None:
    manifest = read_manifest("dataset")
    entries = [replace(e, captions=() if e.split == "val" else e.captions) for e in manifest]
    Manifest("made", Path.cwd(), entries, "", "", {}).write("dataset")
    with pytest.raises(DatasetError, match=r"no captions in its split 'val'.*pipeline embed"):
        fitted("head")


def test_a_head_of_averaged_captions_is_the_regression_of_their_means(data: None) -> None:
    """Fitted and embedded on one caption an image, the mean of its three."""
    experiment = Experiment("made", "ridge", {"ridge": 1e-3}, average_captions=True)
    trained = fitted("head", experiment=experiment)
    assert trained.provenance["average_captions"] is load_head("head").average_captions is True
    train, test = pairs(30, seed=0), pairs(30, seed=2)
    x, means = (all_of(p.captions).reshape(30, 3, -1).mean(axis=1) for p in (train, test))
    y = all_of(train.images)
    gram = (x - x.mean(0)).T @ (x - x.mean(0))
    gram += 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    weight = np.linalg.solve(gram, (x - x.mean(0)).T @ (y - y.mean(0)))
    found = embedded("one.h5")
    assert found.caption_image_ids == found.image_ids == test.image_ids
    expected = (means - x.mean(0)) @ weight + y.mean(0)
    np.testing.assert_allclose(found.caption_embeddings, expected, rtol=1e-3, atol=1e-3)


def test_contradictions_and_other_heads_are_refused(data: None) -> None:
    trained = fitted("head", max_epochs=1)
    assert len(trained.history) == trained.settings["epochs"] == 1
    with pytest.raises(HeadError, match="head of experiment 'made', not of 'other'"):
        require_head_of("head", "other")
    with pytest.raises(WrongUsage, match="not both"):
        embedded("one.h5", place=Place(workers=2, scheduler="tcp://a:1"))
    with pytest.raises(HeadError, match="not found, expected the record of the trained head"):
        embedded("one.h5", head="nowhere")
    assert not Path("one.h5").exists()
