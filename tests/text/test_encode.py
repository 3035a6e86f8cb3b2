"""The job of `pipeline text` from Python: the command's bytes, and what it tells."""

from pathlib import Path

import numpy as np

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.workers.place import Place
from pipeline.text.encode import Captions, encode, encoder_folder
from pipeline.text.fitted import load_encoder
from tests.project import Recorder


def write(folder: Path) -> str:
    entries = (
        ImageEntry("a", "a.jpg", "train", ("A dog runs.", "The dog's ball is red!")),
        ImageEntry("b", "b.jpg", "val", ("A cat sleeps.", "zzqqzz")),
    )
    Manifest("tiny", folder, entries, "none", "made up", {}).write(folder / "tiny")
    return str(folder / "tiny")


def test_captions_become_rows_by_id(tmp_path: Path) -> None:
    dataset, out = write(tmp_path), tmp_path / "mean"
    monitor = Recorder()
    index = encode(dataset, str(out), encoder="mean", monitor=monitor)
    assert (index.rows, index.header.row_shape) == (4, (50,))
    assert "no known word: b#1" in monitor.lines
    rows = FeatureSet(out).read(["b#0", "a#0"])
    encoder = load_encoder(encoder_folder(out))
    np.testing.assert_array_equal(encoder.encode(["A cat sleeps.", "A dog runs."]), rows)


def test_options_of_an_encoder_and_one_split(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    index = encode(
        dataset,
        tmp_path / "o",
        encoder="bow",
        captions=Captions("val", fitted=tmp_path / "f"),
        place=Place(summary=tmp_path / "s.json"),
        vocabulary="min-1",
        tokenizer="treebank",
    )
    assert index.header.row_shape == (8,)
    assert [p.name for p in sorted((tmp_path / "f").iterdir())] == [
        "encoder.json",
        "vocabulary-bow.json",
    ]
    assert (tmp_path / "s.json").is_file()
    assert not encoder_folder(tmp_path / "o").exists()
