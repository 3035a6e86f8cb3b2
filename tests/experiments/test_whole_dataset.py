"""The embedding file that searches look in: made once, made again where its inputs changed."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.experiments.layout import Layout, NotMade
from pipeline.experiments.whole_dataset import searched_embeddings
from pipeline.heads.embed import Stored
from pipeline.heads.experiments import resolve_experiment
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import embeddings_record, read_embeddings
from pipeline.store.jobs.options import Selection
from tests.project import Recorder

NAME = "kiros2014-linear"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with drawn scenes in `mine` and an experiment on them below `made`."""
    folder = tmp_path_factory.mktemp("whole")
    pipeline.draw_scenes(folder / "mine", 20, seed=0).write(folder / "mine")
    pipeline.run(NAME, folder / "mine", root=folder / "made", size="tiny", seeds=2)
    return folder


@pytest.fixture
def layout(trained: Path, tmp_path: Path) -> Layout:
    """A copy of that folder, to be changed."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Layout(tmp_path / "mine", tmp_path / "made")


def found(layout: Layout, name: str = NAME, **options: Any) -> tuple[Path, list[str]]:
    monitor = Recorder()
    file = searched_embeddings(
        name, layout, resolve_experiment, remedy="`run`", monitor=monitor, **options
    )
    return file, monitor.lines


def test_it_is_made_once_and_again_where_the_dataset_changed(layout: Layout) -> None:
    own = layout.embeddings(NAME).read_bytes()
    file, lines = found(layout)
    assert file == layout.searched(NAME)
    assert lines[0].startswith(f"{file}: missing; the whole dataset is embedded once (20 images")
    assert lines[-1].startswith(f"{file}: 0.")
    assert len(read_embeddings(file).image_ids) == 20
    first = file.read_bytes()
    assert found(layout) == (file, [])
    # A split of an image changes: the file is made again, with its rows in another order.
    manifest = pipeline.read_manifest(layout.dataset)
    moved = [replace(e, split="test") if e.split == "val" else e for e in manifest]
    pipeline.Manifest(manifest.name, manifest.image_root, moved, "", "", {}).write(layout.dataset)
    _, lines = found(layout)
    assert lines[0].startswith(f"{file}: the manifest has changed")
    assert read_embeddings(file).provenance["splits"][1][0] == "test"
    manifest.write(layout.dataset)
    assert found(layout)[0].read_bytes() == first
    # Whatever cannot be made: what there is of the test split is searched, and the reason stated.
    head = layout.head(NAME) / "head.safetensors"
    head.write_bytes(head.read_bytes()[:-4] + b"abcd")
    fallback, lines = found(layout)
    assert fallback == layout.embeddings(NAME)
    assert lines[-1].startswith(f"only {fallback} is searched, not the whole dataset: ")
    assert layout.embeddings(NAME).read_bytes() == own
    assert manifest.counts["test"] == len(read_embeddings(fallback).image_ids)


@pytest.mark.parametrize("stored", [pipeline.Stored(dim=8), pipeline.Stored("float16"), None])
def test_shortened_files_are_not_an_experiment_s_own(
    layout: Layout, stored: pipeline.Stored | None
) -> None:
    """Files of fewer dimensions or other stores, and tables of them, are replaced."""
    own, table = layout.embeddings(NAME), layout.evaluation(NAME) / "recall.json"
    files = own.read_bytes(), table.read_bytes()
    if stored is None:
        pipeline.evaluate(own, layout.evaluation(NAME), dim=1)
    else:
        pipeline.embed(
            layout.dataset,
            own,
            head=layout.head(NAME),
            images=layout.features("efficientnet-lite0-pool"),
            captions=layout.text(resolve_experiment(NAME).captions.name),
            stored=stored,
        )
    pipeline.run(NAME, layout.dataset, root=layout.root, size="tiny")
    assert (own.read_bytes(), table.read_bytes()) == files


def test_a_file_that_is_recomputed_keeps_its_store(layout: Layout) -> None:
    file, experiment = layout.searched(NAME), resolve_experiment(NAME)
    pipeline.embed(
        layout.dataset, file, head=layout.head(NAME), images=layout.features(experiment.images),
        captions=layout.text(experiment.captions.name), select=Selection("all"),
        stored=Stored("binary", 16),
    )  # fmt: skip
    assert found(layout) == (file, [])
    manifest = pipeline.read_manifest(layout.dataset)
    moved = [replace(e, split="test") if e.split == "val" else e for e in manifest]
    pipeline.Manifest(manifest.name, manifest.image_root, moved, "", "", {}).write(layout.dataset)
    assert found(layout)[1][0].startswith(f"{file}: the manifest has changed")
    assert (embeddings_record(file) or {})["store"] == "binary"
    assert read_embeddings(file).image_embeddings.shape == (20, 16)


def test_a_named_split_is_that_of_its_own_file(layout: Layout) -> None:
    assert found(layout, split="test") == (layout.embeddings(NAME), [])
    assert found(layout, split="train")[0] == layout.searched(NAME)


def test_what_is_missing_names_its_remedy(layout: Layout) -> None:
    for missing, message in (
        (layout.text(resolve_experiment(NAME).captions.name), "not found; run `run`"),
        (layout.features("efficientnet-lite0-pool"), "not found; run `run`"),
        (layout.head(NAME), "has no trained head: .* not found; run `run`"),
    ):
        shutil.rmtree(missing)
        file, lines = found(layout)
        assert file == layout.embeddings(NAME)
        assert str(missing) in lines[0]
        layout.embeddings(NAME).rename(layout.root / "kept")
        with pytest.raises(NotMade, match=message):
            found(layout)
        (layout.root / "kept").rename(layout.embeddings(NAME))


def test_an_ensemble_is_made_of_its_members(layout: Layout) -> None:
    names = (NAME, f"{NAME}-seed1")
    members = {name: layout.embeddings(name) for name in names}
    weights = dict(zip(names, (1, 2), strict=True))
    pipeline.ensemble(members, layout.ensemble("both"), weights=weights)
    file, _ = found(layout, "both")
    whole = read_embeddings(file)
    assert file == layout.searched("both")
    assert len(whole.image_ids) == 20
    assert found(layout, "both") == (file, [])
    table = pipeline.evaluate(file, layout.root / "part", split="test").table
    alone = pipeline.evaluate(layout.ensemble("both"), layout.root / "alone").table
    assert table == alone


def test_a_dataset_without_captions_is_searched_by_a_head_of_another(layout: Layout) -> None:
    """Images find images, sentences find images, and no sentence is there to be found."""
    source = pipeline.read_manifest(layout.dataset)
    plain = pipeline.Manifest(
        "plain",
        source.image_root,
        [e.__class__(e.id, e.file, "all", ()) for e in source],
        "",
        "",
        {},
    )
    plain.write(layout.dataset.parent / "plain")
    other = Layout(layout.dataset.parent / "plain", layout.root)
    head, recipe = layout.head(NAME), "efficientnet-lite0-pool"
    with pytest.raises(NotMade, match=rf"`pipeline extract --recipe {recipe} --dataset"):
        found(other, head=head)
    pipeline.extract(other.dataset, other.features(recipe), recipe=recipe)
    file, lines = found(other, head=head)
    assert "20 of 20 images have no caption" in lines
    space = read_embeddings(file)
    assert (len(space.image_ids), len(space.caption_ids)) == (20, 0)
    encoder = layout.encoder(resolve_experiment(NAME).captions.name)
    searcher = pipeline.Searcher(file, dataset=other.dataset, head=head, encoder=encoder)
    known, _ = found(layout)
    same = pipeline.Searcher(known, dataset=layout.dataset, head=head, encoder=encoder)
    sentence = source[0].captions[0]
    for here, there in (
        (searcher.by_sentences(sentence, top=20), same.by_sentences(sentence, top=20)),
        (searcher.by_image(source[0].id, top=20), same.by_image(source[0].id, of="images", top=20)),
    ):
        scores = {hit.id: hit.score for hit in there}
        assert {hit.id for hit in here} == {*scores}
        np.testing.assert_allclose(
            [hit.score for hit in here], sorted(scores.values())[::-1], atol=1e-5
        )
        assert {hit.split for hit in here} == {"all"}
    with pytest.raises(EmbeddingsError, match="has no sentences of all splits"):
        searcher.by_image(source[0].id, of="sentences")
