"""The search from Python: strings or paths in, hits out, and torch only where a model embeds."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.datasets.manifest import Manifest
from pipeline.heads import HeadError
from pipeline.heads.embed import embed_split
from pipeline.heads.trained_head import load_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.csls import Reference
from pipeline.retrieval.embedding_file import write_embeddings
from pipeline.retrieval.ensemble import average
from pipeline.retrieval.evaluate import with_dim
from pipeline.retrieval.query.embedded_dataset import Hit
from pipeline.retrieval.query.query_models import QueryModels
from pipeline.retrieval.query.searcher import Searcher
from pipeline.store.errors import WrongUsage
from pipeline.text.fitted import load_encoder
from pipeline.web.serve.service import Query, SearchService
from tests.retrieval.query.factories import CAPTIONS, ENTRIES, FILES, embedded, features


@pytest.fixture(scope="module")
def folder(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with an embedding file `e.h5`, and the same under cosine as `cosine.h5`."""
    folder = tmp_path_factory.mktemp("searcher")
    space = embedded(made, load_head(made / "head"))
    write_embeddings(folder / "e.h5", space)
    write_embeddings(folder / "cosine.h5", replace(space, similarity="cosine"))
    Manifest("made", made, tuple(ENTRIES), "mine", "drawn here", {}).write(folder)
    return folder


@pytest.fixture(params=[str, Path])
def searcher(request: pytest.FixtureRequest, made: Path, folder: Path) -> Searcher:
    """The models of both files are those of a head whose similarity is euclidean."""
    path = request.param
    return Searcher(
        path(folder / "e.h5"), dataset=path(folder), head=path(made / "head"),
        encoder=path(made / "encoder"),
    )  # fmt: skip


def test_a_sentence_finds_itself_and_images(searcher: Searcher, made: Path) -> None:
    own, other = searcher.by_sentences([CAPTIONS[0], CAPTIONS[2]], of="sentences", top=2)
    assert own[0] == Hit(1, own[0].score, "p0#0", "p0", made / FILES[0], CAPTIONS[0], "train")
    assert [hit.rank for hit in own] == [1, 2]
    assert own[0].score == pytest.approx(0, abs=1e-6)
    assert other[0].id == "p1#0"
    (images,) = searcher.by_sentences([CAPTIONS[2]])
    assert [hit.id for hit in images] == ["p1", "p0"]
    assert images[0].caption == CAPTIONS[2]


def test_a_small_file_is_searched_and_shortens_its_queries(made: Path, folder: Path) -> None:
    trained = load_head(made / "head")
    # The head's own similarity has no prefixes.
    trained.head.similarity = "cosine"
    space = embedded(made, trained)
    short = with_dim(replace(space, provenance={**space.provenance, "dim": 3}), 3)
    write_embeddings(folder / "small.h5", short, store="binary")
    searcher = Searcher(
        folder / "small.h5", dataset=folder, head=made / "head", encoder=made / "encoder",
        split="train",
    )  # fmt: skip
    assert isinstance(searcher.models, QueryModels)
    searcher.models.head.head.similarity = "cosine"
    (found,) = searcher.by_sentences([CAPTIONS[2]], of="sentences", top=4)
    assert found[0].id == "p1#0"
    assert found[0].score == pytest.approx(1, abs=0.01)
    assert [hit.id for hit in searcher.by_image("p1", of="images")] == ["p0"]


def test_a_file_of_corrected_cosines_corrects_its_queries(made: Path, folder: Path) -> None:
    trained = load_head(made / "head")
    trained.head.similarity = "cosine"
    space = embedded(made, trained)
    reference = Reference(space.image_embeddings, space.caption_embeddings)
    corrected = replace(
        space,
        image_embeddings=reference.extended(space.image_embeddings, "images"),
        caption_embeddings=reference.extended(space.caption_embeddings, "captions"),
        similarity="dot",
        provenance={**space.provenance, "csls": "train"},
    )
    write_embeddings(folder / "csls.h5", corrected)
    searcher = Searcher(
        folder / "csls.h5", dataset=folder, head=made / "head", encoder=made / "encoder"
    )
    products = corrected.image_embeddings @ corrected.caption_embeddings.T
    own = corrected.caption_embeddings[:, -1]  # of each query
    for number, caption in enumerate(CAPTIONS):
        (found,) = searcher.by_sentences([caption], of="images")
        scores = dict(zip(corrected.image_ids, products[:, number] - own[number], strict=True))
        assert {hit.id: pytest.approx(hit.score, abs=1e-6) for hit in found} == scores
    for image in (corrected.image_ids[0], made / FILES[0]):
        (best, *_) = searcher.by_image(image, of="sentences")
        expected = (products[0] - corrected.image_embeddings[0, -2]).max()
        assert best.score == pytest.approx(expected, abs=1e-5)
    both = average([corrected, replace(space, similarity="cosine")])
    write_embeddings(folder / "both.h5", both)
    searcher = Searcher(folder / "both.h5", dataset=folder)
    with pytest.raises(EmbeddingsError, match="corrected for hubs member by member"):
        searcher.by_image("p0")


def test_a_picture_is_an_id_a_file_or_decoded(searcher: Searcher, made: Path) -> None:
    by_id = searcher.by_image("p1", top=4)
    assert {hit.id for hit in by_id} == {"p0#0", "p0#1", "p1#0", "p1#1"}
    with Image.open(made / FILES[1]) as image:
        image.load()
    for picture in (made / FILES[1], str(made / FILES[1]), image):
        found = searcher.by_image(picture, top=4)
        assert [hit.id for hit in found] == [hit.id for hit in by_id]
        # Only an id is left out of its own hits.
        assert [hit.id for hit in searcher.by_image(picture, of="images")] == ["p1", "p0"]
    assert [hit.id for hit in searcher.by_image("p1", of="images")] == ["p0"]
    with pytest.raises(EmbeddingsError, match=r"'p2' is neither the id of an image .* nor a file"):
        searcher.by_image("p2")
    with pytest.raises(EmbeddingsError, match=r"p2.png is missing"):
        searcher.by_image(made / "p2.png")


def test_a_sentence_alone_has_its_own_hits_and_a_word_alone_is_a_word(
    searcher: Searcher, folder: Path, made: Path
) -> None:
    assert [searcher.by_sentences(CAPTIONS[2])] == searcher.by_sentences([CAPTIONS[2]])
    assert searcher.by_sentences([]) == []
    cosine = Searcher(
        folder / "cosine.h5", dataset=folder, head=made / "head", encoder=made / "encoder"
    )
    # A head whose similarity is not the file's: its embeddings are composed all the same.
    cosine.models.__dict__["head"] = load_head(made / "head")
    assert cosine.by_image("p1", minus="dogs", plus="red") == cosine.by_image(
        "p1", minus=["dogs"], plus=["red"]
    )


def test_wrong_usage_is_refused_before_a_model_is_loaded(folder: Path) -> None:
    searcher = Searcher(folder / "cosine.h5", dataset=folder, head="nowhere")
    for top, around_mean, message in ((0, None, "below 1"), (5, 4, "fewer than `top=5`")):
        with pytest.raises(WrongUsage, match=message):
            searcher.by_sentences(["a dog"], top=top, around_mean=around_mean)
        with pytest.raises(WrongUsage, match=message):
            searcher.by_image("p0", top=top, around_mean=around_mean)
    euclidean = Searcher(folder / "e.h5", dataset=folder, head="nowhere")
    with pytest.raises(EmbeddingsError, match="by cosine"):
        euclidean.by_image("p0", plus=["red"])
    with pytest.raises(EmbeddingsError, match="by cosine"):
        euclidean.by_sentences(["a dog"], around_mean=5)


def test_a_stored_image_is_searched_without_torch(folder: Path) -> None:
    script = (
        "import sys; from pipeline.retrieval.query.searcher import Searcher; "
        f"s = Searcher({str(folder / 'cosine.h5')!r}, dataset={str(folder)!r}); "
        "print([hit.id for hit in s.by_image('p0', of='images')]); "
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "['p1']\n"), ended.stderr


def test_splits_are_searched_apart_and_images_alone(made: Path, tmp_path: Path) -> None:
    space = embedded(made, load_head(made / "head"))
    write_embeddings(tmp_path / "e.h5", space)
    other = replace(ENTRIES[1], split="test")
    Manifest("made", made, (ENTRIES[0], other), "mine", "drawn here", {}).write(tmp_path)
    models: dict[str, Any] = {"head": made / "head", "encoder": made / "encoder"}
    test = Searcher(tmp_path / "e.h5", dataset=tmp_path, split="test", **models)
    assert (list(test.ids("images")), list(test.ids("sentences"))) == (["p1"], ["p1#0", "p1#1"])
    assert [(hit.id, hit.split) for hit in test.by_sentences(CAPTIONS[0])] == [("p1", "test")]
    # The query may be any image of the file; only what is found is of the split.
    assert {hit.id for hit in test.by_image("p0")} == {"p1#0", "p1#1"}
    assert SearchService(test).searched == "1 images and 2 sentences"
    both = Searcher(tmp_path / "e.h5", dataset=tmp_path, split="test,train", **models)
    assert len(both.by_image("p0")) == 4

    alone = embed_split(load_head(made / "head"), [replace(e, captions=()) for e in ENTRIES],
                        features(made)[0], None, tmp_path / "alone.h5", {})  # fmt: skip
    assert not alone.caption_ids
    searcher = Searcher(tmp_path / "alone.h5", dataset=tmp_path, **models)
    assert [hit.id for hit in searcher.by_image("p0")] == ["p1"]
    assert [hit.id for hit in searcher.by_sentences(CAPTIONS[0])] == ["p0", "p1"]
    service = SearchService(searcher)
    assert (service.sides, service.answer(Query(image="p1")).of) == (("images",), "images")
    with pytest.raises(EmbeddingsError, match="has no sentences"):
        searcher.by_sentences(CAPTIONS[0], of="sentences")


def test_a_search_by_a_vector_and_by_an_encoder_of_ones_own(made: Path, folder: Path) -> None:
    files: dict[str, Any] = {"embeddings": folder / "e.h5", "dataset": folder}
    fitted = Searcher(**files, head=made / "head", encoder=made / "encoder")
    features, head = load_encoder(made / "encoder"), load_head(made / "head")
    texts = [CAPTIONS[0], CAPTIONS[2]]
    rows = head.embed_captions(features.encode(texts))
    expected = fitted.by_sentences(texts, of="sentences", top=4)
    alone = Searcher(**files)
    assert [alone.by_vector(row, of="sentences", top=4) for row in rows] == expected
    # Not symmetric in image and caption.
    write_embeddings(folder / "order.h5", replace(alone.embedded.space, similarity="order"))
    order = Searcher(folder / "order.h5", dataset=folder)
    (stored,) = order.embedded.stored("p1")
    by_image = order.by_image("p1", of="sentences", top=4)
    assert order.by_vector(stored.tolist(), side="images", of="sentences", top=4) == by_image
    own = Searcher(**files, head=made / "head", encoder=features.encode)
    assert own.by_sentences(texts, of="sentences", top=4) == expected
    embedding = Searcher(**files, encoder=lambda some: head.embed_captions(features.encode(some)))
    assert embedding.by_sentences(texts, of="sentences", top=4) == expected

    dim = rows.shape[1]
    for wrong in (rows[0, 1:], rows, 1.0):
        with pytest.raises(EmbeddingsError, match=rf"the vector has shape .*with dim {dim} for"):
            alone.by_vector(wrong)
    with pytest.raises(EmbeddingsError, match="the vector is not finite"):
        alone.by_vector(rows[0] * np.nan)
    with pytest.raises(EmbeddingsError, match=rf"result has shape \(1, {dim}\)"):
        Searcher(**files, encoder=lambda some: rows[:1]).by_sentences(texts)
    for given in (torch.ones(1, 2, requires_grad=True), [[1, 2], [3]], "no"):

        def encode(_: object, given: object = given) -> object:
            return given

        with pytest.raises(EmbeddingsError, match="the encoder's result is not an array of num"):
            Searcher(**files, head=made / "head", encoder=encode).by_sentences(texts)
    with pytest.raises(HeadError, match=r"caption features of shape \(2, 3\) found"):
        Searcher(**files, head=made / "head", encoder=lambda some: np.ones((2, 3))).by_sentences(
            texts
        )
