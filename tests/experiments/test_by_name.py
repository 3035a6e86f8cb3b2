"""Experiments by name: searched, served, described and reported where `run` put their files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pipeline
from pipeline.experiments.layout import NotMade
from pipeline.heads import HeadError
from pipeline.language import LanguageError
from pipeline.regions import RegionError
from pipeline.store.errors import WrongUsage
from pipeline.web.serve.server import Server
from tests.project import Recorder

NAME = "qian2018-baseline"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with drawn scenes in `mine` and an experiment on them below `made`."""
    folder = tmp_path_factory.mktemp("by-name")
    pipeline.draw_scenes(folder / "mine", 12, seed=0).write(folder / "mine")
    pipeline.run(NAME, folder / "mine", root=folder / "made")
    return folder


def test_a_searcher_is_opened_by_name(made: Path) -> None:
    searcher = pipeline.open_searcher(NAME, str(made / "mine"), root=str(made / "made"))
    manifest = pipeline.read_manifest(made / "mine")
    hits = searcher.by_sentences("a red ball", top=99)
    assert [hit.rank for hit in hits] == list(range(1, 13))
    assert {hit.id: hit.split for hit in hits} == {entry.id: entry.split for entry in manifest}
    one = pipeline.open_searcher(NAME, made / "mine", root=made / "made", split="test")
    found = one.by_sentences("a red ball", top=99)
    assert [hit.id for hit in found] == [hit.id for hit in hits if hit.split == "test"]
    (test, _) = manifest.split("test")
    file = manifest.image_root / test.file
    expected = [(hit.id, hit.caption) for hit in searcher.by_image(file, top=2)]
    with Image.open(file) as image:
        for given in (str(file), file.read_bytes(), image):
            found = searcher.by_image(given, top=2)
            assert [(hit.id, hit.caption) for hit in found] == expected


def test_captions_are_embedded_by_the_encoder_and_head_of_an_experiment(made: Path) -> None:
    layout = pipeline.Layout(made / "mine", made / "made")
    assert layout.encoder(NAME) == layout.encoder("mean-glove-6b-50d") != layout.encoder("other")
    space = pipeline.read_embeddings(layout.embeddings(NAME))
    captions = pipeline.read_manifest(made / "mine").captions("test")
    assert list(captions.ids) == list(space.caption_ids)
    encoder = pipeline.load_encoder(layout.encoder(NAME))
    head = pipeline.load_head(layout.head(NAME), device="cpu")
    rows = head.caption(torch.from_numpy(encoder.encode(captions.texts)))
    np.testing.assert_allclose(rows.numpy(), space.caption_embeddings, rtol=1e-6)
    features = pipeline.read_features(layout.features("efficientnet-lite0-pool"))
    rows = head.image(torch.from_numpy(features[list(space.image_ids)]))
    np.testing.assert_array_equal(rows.numpy(), space.image_embeddings)


def test_what_was_not_made_says_what_makes_it(made: Path) -> None:
    with pytest.raises(NotMade, match=r"vsepp not found; run pipeline\.run\('vsepp', "):
        pipeline.open_searcher("vsepp", made / "mine", root=made / "made")
    with pytest.raises(NotMade, match=r"pipeline\.localize\('wang2016-phrases-cca', "):
        pipeline.open_region_searcher("wang2016-phrases-cca", made / "mine", root=made / "made")
    with pytest.raises(HeadError, match="vseppp"):
        pipeline.open_searcher("vseppp", made / "mine", root=made / "made")
    with pytest.raises(RegionError, match="not on regions and phrases"):
        pipeline.localize(NAME, made / "mine", method="grid", root=made / "made")


def test_a_page_is_served_by_name(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "run", lambda server: None)
    monitor = Recorder()
    pipeline.serve(NAME, made / "mine", root=made / "made", port=0, monitor=monitor)
    assert monitor.lines[-1].startswith("http://127.0.0.1:")
    with pytest.raises(WrongUsage, match="localize=True"):
        pipeline.serve(NAME, made / "mine", localize=True, language_model="kiros2014-sc-nlm")


def test_images_and_splits_are_described_and_scored(made: Path) -> None:
    dataset, root = made / "mine", made / "made"
    manifest = pipeline.read_manifest(dataset)
    file = manifest.image_root / manifest[0].file
    one = pipeline.caption(file, dataset, experiment=NAME, baseline="nearest", root=root)
    assert one.image == str(file)
    assert one.text in manifest.captions("train").texts
    gone, image = pipeline.caption(
        [made / "gone.png", Image.new("RGB", (64, 64))],
        dataset,
        experiment=NAME,
        baseline="nearest",
        root=root,
    )
    assert (gone.captions, image.image, image.error) == ((), "image 1", "")
    assert "missing" in gone.error
    with pytest.raises(WrongUsage, match="ranks captions but generates none"):
        pipeline.caption(file, dataset, experiment=NAME, root=root)
    with pytest.raises(WrongUsage, match="has no captions"):
        pipeline.score(None, dataset, root=root)
    described = pipeline.caption_split(
        dataset, experiment=NAME, baseline="nearest", count=1, root=root
    )
    assert [d.image for d in described] == [*manifest.split("test").ids]
    (name,) = scores = pipeline.score(None, dataset, ranked_by=NAME, root=root)
    assert name == f"{NAME}-nearest"
    written = pipeline.Layout(dataset, root).caption_scores(name) / "captions.json"
    assert json.loads(written.read_text()) == pytest.approx(scores[name])
    again = pipeline.score(root / f"captions/mine/{name}.jsonl", dataset, made / "elsewhere")
    assert scores[name].items() >= again[name].items()


def test_a_caption_without_a_known_word_finds_nothing(made: Path) -> None:
    """It is the last of all images, and is counted; the others are ranked as before."""
    dataset, root = made / "mine", made / "made"
    entries = [e for e in pipeline.read_manifest(dataset) if e.captions][:4]
    texts = [e.captions[0] for e in entries[:2]] + ["xqzzy wvvk", ""]
    lines = [{"image_id": e.id, "caption": t} for e, t in zip(entries, texts, strict=True)]
    files = [made / "all.json", made / "one.json"]
    for file, kept in zip(files, (lines, lines[2:]), strict=True):
        file.write_text(json.dumps(kept))
    monitor = Recorder()
    (row,) = pipeline.score(
        files[0], dataset, made / "out", ranked_by=NAME, root=root, monitor=monitor
    ).values()
    assert row["finds_image_r1"] <= 50
    assert row["finds_image_r10"] == 100  # of four images
    assert any(
        "2 captions have no word" in line and f"first of {[e.id for e in entries[2:]]}" in line
        for line in monitor.lines
    )
    with pytest.raises(LanguageError, match="knows no word of 2 captions"):
        pipeline.score(files[1], dataset, made / "out", ranked_by=NAME, root=root)
    files[1].write_text(json.dumps(lines[:1]))
    pipeline.score(files[1], dataset, made / "out", root=root, monitor=monitor)
    assert "one image is scored: CIDEr weights words by other images, and is 0" in monitor.lines


def test_a_dataset_is_reported_by_its_folder(made: Path) -> None:
    report = pipeline.write_report(made / "mine", root=made / "made")
    assert list(report.rows) == [NAME]
    assert (made / "made/report/mine/recall.md").is_file()
