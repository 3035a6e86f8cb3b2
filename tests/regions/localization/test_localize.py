"""From drawn scenes to localized phrases: trained, mined, killed and continued, asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import pipeline
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.regions import read_phrases
from pipeline.experiments.layout import Layout
from pipeline.experiments.steps.step import Plan
from pipeline.heads import HeadError
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.head_types import Experiment
from pipeline.heads.inputs.links import links_of
from pipeline.heads.trained_head import load_head
from pipeline.heads.training.training_options import TrainingOptions
from pipeline.regions import RegionError
from pipeline.regions.boxes import iou
from pipeline.regions.localization.evaluate_localization import tabulate
from pipeline.regions.localization.localize import localize
from pipeline.regions.localization.localize_by_name import localize_experiments
from pipeline.regions.localization.localized import Localized, read_localized
from pipeline.regions.localization.mining import mine
from pipeline.regions.localization.pairs import training_pairs
from pipeline.regions.localization.region_searcher import RegionSearcher
from pipeline.regions.localization.sources import OpenSources, Sources
from pipeline.regions.localization.train_localizer import fit_to_phrases
from pipeline.regions.methods import true_boxes, true_regions
from pipeline.regions.proposal_source import Proposer
from pipeline.regions.proposals import read_proposals, region_id
from pipeline.regions.propose import propose
from pipeline.retrieval import EmbeddingsError
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.feature_set import FailedRows
from pipeline.studies.scenes.draw_scenes import draw_scenes
from pipeline.text.caption_source import unique_phrases
from pipeline.text.encode import Captions, encode
from pipeline.web.pages.marked import write_marked
from pipeline.web.report.localizations import sentences_of, write_localization_page
from pipeline.web.serve.region_service import RegionService
from pipeline.web.serve.result_pages import Pages
from pipeline.web.serve.service import Query
from tests.project import Recorder

SMALL: dict[str, Any] = {
    "hidden": 64, "dim": 16, "batch_size": 100, "dropout": 0.0, "epochs": 6, "learning_rate": 0.05
}  # fmt: skip


def write_region_features(dataset: Path, proposals: Path, out: Path) -> None:
    """Write each region's crop at 4 x 4 pixels and the shape of its box, 52 numbers."""
    manifest, boxes = read_manifest(dataset), read_proposals(proposals)
    ids, rows = [], []
    for entry in manifest.entries:
        with Image.open(manifest.image_root / entry.file) as image:
            whole = np.array(image.size * 2, float)
            for name, box in zip(boxes.region_ids(entry.id), boxes.boxes(entry.id), strict=True):
                crop = image.resize((4, 4), Image.Resampling.BOX, box=tuple(box.tolist()))
                ids.append(name)
                rows.append(np.concatenate([np.asarray(crop).ravel() / 128 - 1, box / whole]))
    array = np.array(rows, np.float32)
    pipeline.write_features(out, ids, array, recipe={"name": "crops"}, dataset=manifest.name)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Drawn scenes, grid proposals, true boxes, features of all and of the phrases."""
    root = tmp_path_factory.mktemp("localization")
    draw_scenes(root / "scenes", 72, seed=0).write(root / "scenes")
    for method in ("grid", "ground-truth"):
        propose(root / "scenes", root / method, proposer=Proposer(method, 60))
        write_region_features(root / "scenes", root / method, root / f"{method}-crops")
    encode(root / "scenes", root / "phrases", encoder="bow", captions=Captions(phrases=True))
    return Sources(
        root / "scenes", root / "phrases", root / "ground-truth-crops", root / "grid",
        root / "grid-crops", most=60,
    )  # fmt: skip


def experiment(name: str, **settings: Any) -> Experiment:
    preset = f"wang2016-phrases-{name}"
    return resolve_experiment(preset, settings={**SMALL, **settings}, size="tiny")


def localized(
    sources: Sources, root: Path, name: str, monitor: Monitor = QUIET, **settings: Any
) -> tuple[str, ...]:
    """Train and localize as `pipeline localize --split val` does; return the steps made."""
    named = {
        found.name: found
        for found in (experiment("d"), experiment("d-mined", epochs=2, learning_rate=0.01))
    }
    asked = replace(named[name], settings={**named[name].settings, **settings})
    layout = Layout(sources.dataset, root)
    plan = Plan(layout, test_split="val", experiment_named=named.__getitem__)
    return localize_experiments(plan, [(asked, sources)], monitor=monitor)


def test_phrases_are_encoded_once(sources: Sources) -> None:
    phrases = read_phrases(sources.dataset)
    texts = pipeline.read_features(sources.phrases)
    assert set(texts.ids) == {phrase.key for phrase in phrases}
    assert len(texts.ids) < len(phrases)
    keys = unique_phrases(sources.dataset)
    assert len(set(keys.texts)) == len(keys.ids)
    said = [replace(phrases[0], phrase=text).key for text in ("A  Red\tball", "a red ball")]
    assert said[0] == said[1]


def test_pairs_are_the_annotated_ones_so_many_regions_a_phrase(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.regions.localization.pairs.REGIONS_A_PHRASE", 2)
    phrases, opened = read_phrases(sources.dataset, "train"), OpenSources(sources)
    pairs = training_pairs(phrases, opened.truth, opened.texts, seed=0)
    links, numbers = links_of(pairs), true_regions(phrases)
    annotated = {(region_id(p.image, k), p.key) for p in phrases for k in numbers[p.id]}
    made = {tuple(caption_id.rsplit("~", 1)) for caption_id in pairs.caption_ids}
    assert made <= annotated
    counts = {key: sum(k == key for _, k in annotated) for _, key in annotated}
    for key, number in counts.items():
        assert sum(k == key for _, k in made) == min(number, 2)
    assert max(counts.values()) > 2
    values, place = links.phrases_of_image.of_rows(np.arange(len(pairs.image_ids)))
    keys = list({p.key: None for p in phrases})
    linked = {(pairs.image_ids[r], keys[p]) for r, p in zip(place, values, strict=True)}
    kept = set(pairs.image_ids)
    assert linked == {(region, key) for region, key in annotated if region in kept}
    row = pairs.captions.take(np.array([3]))[0]
    text = opened.texts.read([pairs.caption_ids[3].rsplit("~", 1)[1]])[0]
    np.testing.assert_array_equal(row, text)


def score(found: Localized, name: str = "x") -> dict[str, float]:
    return dict(tabulate(found, name).rows[name])


def test_trained_mined_and_localized(sources: Sources, tmp_path: Path) -> None:
    base, mined = "wang2016-phrases-d", "wang2016-phrases-d-mined"
    layout = Layout(sources.dataset, tmp_path)
    record = Recorder()
    assert localized(sources, tmp_path, base, record) == (f"train {base}", f"localize {base}")
    first_bytes = layout.localization(base).read_bytes()
    head_bytes = (layout.head(base) / "head.safetensors").read_bytes()
    made = localized(sources, tmp_path, mined, record)
    assert made == (f"train {mined}", f"localize {mined}")
    assert f"[1/3] train {base}: up to date" in record.lines
    assert any("are closer to a phrase" in line for line in record.lines)
    first = read_localized(layout.localization(base))
    again = read_localized(layout.localization(mined))
    table = tabulate(first, "d")
    own, largest = table.rows["d"], table.rows["largest box"]
    assert own["pointing_game"] > largest["pointing_game"] + 10
    assert own["bound"] == score(again)["bound"]
    assert again.provenance["experiment"] == mined
    assert again.provenance["split"] == "val"
    # What is up to date is left alone; what is missing or made otherwise is made, and no more.
    assert localized(sources, tmp_path, base) == ()
    layout.localization(base).unlink()
    assert localized(sources, tmp_path, base) == (f"localize {base}",)
    assert layout.localization(base).read_bytes() == first_bytes
    layout.localization(base).write_bytes(b"damaged")
    assert localized(sources, tmp_path, base) == (f"localize {base}",)
    assert (layout.head(base) / "head.safetensors").read_bytes() == head_bytes
    fewer = replace(sources, most=30)
    record = Recorder()
    localized(fewer, tmp_path, base, record, epochs=1)
    assert record.lines[0].startswith(f"[1/2] train {base}: settings.epochs is 6, expected 1 ->")
    assert localized(fewer, tmp_path, base, epochs=1) == ()
    record = Recorder()
    localized(sources, tmp_path, base, record, epochs=1)
    assert "train wang2016-phrases-d: made_from." in record.lines[0]


def test_images_of_failed_regions_are_left_out(sources: Sources, tmp_path: Path) -> None:
    """As if the dataset had no phrase and no box of them."""
    failed = next(p.image for p in read_phrases(sources.dataset, "train"))
    truth = pipeline.read_features(sources.truth)
    status = np.array([name.rpartition("@")[0] == failed for name in truth.ids], np.uint8)
    rows = np.where(status[:, None], np.nan, truth.read(truth.ids)).astype(np.float32)
    pipeline.write_features(
        tmp_path / "truth", list(truth.ids), rows, recipe={"name": "crops"}, status=status,
        dataset=truth.index.header.dataset,
    )  # fmt: skip
    damaged = replace(sources, truth=tmp_path / "truth")
    asked = experiment("a", epochs=1)
    with pytest.raises(FailedRows):
        fit_to_phrases(damaged, tmp_path / "a", experiment=asked)
    record = Recorder()
    training = TrainingOptions(leave_out_failed=True, monitor=record)
    fit_to_phrases(damaged, tmp_path / "a", experiment=asked, training=training)
    assert record.lines[0] == "1 image without features of all regions is left out"
    phrases = read_phrases(sources.dataset, "train")
    numbers = true_regions(phrases)
    regions = {region_id(p.image, k) for p in phrases for k in numbers[p.id] if p.image != failed}
    assert record.lines[1].startswith(f"train: {len(regions)} regions, ")


def test_mined_boxes_are_nearer_and_wrong(sources: Sources, tmp_path: Path) -> None:
    trained = fit_to_phrases(sources, tmp_path / "a", experiment=experiment("a", epochs=1))
    phrases, opened = read_phrases(sources.dataset, "train"), OpenSources(sources)
    keys = list({p.key: None for p in phrases})
    mined = mine(trained.head, phrases, opened, seed=0)
    assert 0 < np.diff(mined.of_phrase.starts).max() <= 50
    assert mined.region_ids == mine(trained.head, phrases, opened, seed=0).region_ids
    boxes, numbers = true_boxes(phrases), true_regions(phrases)
    embed = trained.embed_images
    for row in range(0, len(keys), 7):
        said = trained.embed_captions(opened.texts.read([keys[row]]))[0]
        values, _ = mined.of_phrase.of_rows(np.array([row]))
        for region in (mined.region_ids[v] for v in values[:5]):
            image, _, k = region.rpartition("@")
            own = sorted(
                {n for p in phrases if p.image == image and p.key == keys[row]
                 for n in numbers[p.id]}
            )  # fmt: skip
            true = embed(opened.truth.read([region_id(image, n) for n in own])) @ said
            assert (embed(opened.regions.read([region]))[0] @ said) > true.max() - 1e-6
            box = opened.proposals.boxes(image)[[int(k)]]
            assert iou(box, boxes[image][own]).max() < 0.5


def test_interrupted_and_continued_gives_the_same_bytes(sources: Sources, tmp_path: Path) -> None:
    start = tmp_path / "base"
    fit_to_phrases(sources, start, experiment=experiment("d", epochs=1))
    asked: dict[str, Any] = {"experiment": experiment("d-mined", epochs=3), "start": start}
    fit_to_phrases(sources, tmp_path / "whole", **asked)
    record = Recorder(interrupt_at=2, unit="epoch")
    with pytest.raises(KeyboardInterrupt):
        fit_to_phrases(sources, tmp_path / "cut", training=TrainingOptions(monitor=record), **asked)
    work = tmp_path / ".work" / "train-cut"
    assert record.lines[-1].startswith(f"interrupted: 2 epochs are kept in {work};")
    record = Recorder()
    training = TrainingOptions(monitor=record, workers=1)
    fit_to_phrases(sources, tmp_path / "cut", training=training, **asked)
    assert record.lines[-1] == f"resuming from {work} after epoch 2 of 3"
    for file in ("head.safetensors", "head.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert load_head(tmp_path / "cut").made_from["start_sha256"] == load_head(start).tensors_sha256


def test_canonical_correlation_takes_the_same_pairs(sources: Sources, tmp_path: Path) -> None:
    settings = {"image_ridge": 0.01, "caption_ridge": 0.01}
    cca = resolve_experiment("wang2016-phrases-cca", settings=settings, size="tiny")
    trained = fit_to_phrases(sources, tmp_path / "cca", experiment=cca)
    assert trained.chosen["rsum"] == pytest.approx(
        sum(trained.chosen[f"phrase_to_region_r{k}"] for k in (1, 5, 10))
    )
    found = localize(sources, tmp_path / "cca.h5", head=tmp_path / "cca", split="val")
    rsum = sum(score(found)[f"phrase_to_region_r{k}"] for k in (1, 5, 10))
    assert rsum == pytest.approx(trained.chosen["rsum"])


def test_found_boxes_are_marked(sources: Sources, tmp_path: Path) -> None:
    name = "wang2016-phrases-cca"
    cca = resolve_experiment(name, settings={"image_ridge": 0.1, "caption_ridge": 0.1})
    fit_to_phrases(sources, tmp_path / name, experiment=cca)
    localize(sources, tmp_path / "c.h5", head=tmp_path / name, split="val")
    searcher = RegionSearcher(
        tmp_path / "c.h5", dataset=sources.dataset, head=tmp_path / name,
        encoder=sources.phrases.with_name("phrases.encoder"),
    )  # fmt: skip
    found, phrase = searcher.found, searcher.found.phrase_texts[0]
    (hits,) = searcher.by_phrases([phrase], top=4)
    # As a loop over all boxes would have it.
    best = {}
    for image, image_id in enumerate(found.image_ids):
        scores = found.scores(image, found.phrases[:1])[:, 0]
        best[image_id] = (float(scores.max()), tuple(found.boxes[found.regions_of(image)][
            scores.argmax()].tolist()))  # fmt: skip
    expected = sorted(best.items(), key=lambda item: -item[1][0])[:4]
    assert [hit.id for hit in hits] == [image_id for image_id, _ in expected]
    assert [hit.box for hit in hits] == [box for _, (_, box) in expected]
    files = write_marked(tmp_path / "marked", f"{phrase} <&>", hits)
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert len(texts) == 4
    for text in texts:
        root = ElementTree.fromstring(text)
        assert "<&>" in root.get("aria-label", "")
        assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 2
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")

    answer = RegionService(searcher, top=3).answer(Query(sentence=phrase))
    assert [hit.id for hit in answer.hits] == [hit.id for hit in hits[:3]]
    first = answer.to_json()["hits"][0]
    assert (first["box"], first["size"]) == (hits[0].box, hits[0].size)
    page = Pages(RegionService(searcher)).results(answer)
    assert page.count("<rect") == 6
    with pytest.raises(EmbeddingsError, match="enter one"):
        RegionService(searcher).answer(Query(image=hits[0].id))

    written = write_localization_page([tmp_path / "c.h5"], sources.dataset, tmp_path / "html")
    text = written.read_text(encoding="utf-8")
    assert all(part in text for part in (name, "largest box", "Wrong at first", "Worst failures"))
    again = write_localization_page([tmp_path / "c.h5"], sources.dataset, tmp_path / "again")
    assert again.read_bytes() == written.read_bytes()
    found = read_localized(tmp_path / "c.h5")
    manifest, phrases = read_manifest(sources.dataset), read_phrases(sources.dataset)
    sentences = sentences_of({"one": found, "twin": found}, manifest, phrases)
    assert sentences
    for sentence in sentences:
        assert all(p.lower() in sentence.text.lower() for p, _ in sentence.phrases)
        assert sentence.photos["one"] == sentence.photos["twin"]
        assert sentence.photos["one"].count("<rect") == 2 * len(sentence.phrases) >= 4
    assert not sentences_of({"one": found}, manifest, phrases)


def test_what_does_not_fit_is_refused(sources: Sources, tmp_path: Path) -> None:
    captions = resolve_experiment("wang2016-cca")
    plan = Plan(Layout(sources.dataset, tmp_path))
    with pytest.raises(RegionError, match="not on regions and phrases"):
        localize_experiments(plan, [(captions, sources)], monitor=QUIET)
    with pytest.raises(RegionError, match="phrases are the queries here; set it to rsum"):
        fit_to_phrases(sources, tmp_path / "a", experiment=experiment("a", selection="map"))
    other = experiment("a-mined", dim=8, epochs=1)
    fit_to_phrases(sources, tmp_path / "a", experiment=experiment("a", epochs=1))
    with pytest.raises(HeadError, match="another architecture"):
        fit_to_phrases(sources, tmp_path / "b", experiment=other, start=tmp_path / "a")
