"""MTEB's image-text retrieval over a head and its encoder, with the figures of this project."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.heads.trained_head import load_head
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.measures import DIRECTIONS
from pipeline.retrieval.query.mteb_encoder import MtebEncoder
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.similarity import CROSS_ATTENTIONS
from pipeline.studies.relevance.figures import relevance_figures
from pipeline.studies.relevance.relevance_file import rows_of
from tests.retrieval.query.factories import CAPTIONS, FILES, embedded


def batches(made: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    images = [Image.open(made / file).convert("RGB") for file in FILES]
    return [{"image": [image]} for image in images], [{"text": [*CAPTIONS]}]


def test_embeddings_are_those_of_the_embedding_file(made: Path) -> None:
    model = MtebEncoder(made / "head", made / "encoder")
    images, texts = batches(made)
    expected = embedded(made, load_head(made / "head"))
    found = model.encode(texts, hf_split="test", batch_size=2)
    np.testing.assert_array_equal(found, expected.caption_embeddings)
    np.testing.assert_allclose(model.encode(images), expected.image_embeddings, atol=2e-3)
    scores = model.similarity(found, found)
    assert scores.shape == (4, 4)
    pairwise = model.similarity_pairwise(found, found[::-1])
    np.testing.assert_allclose(pairwise, scores.numpy()[:, ::-1].diagonal())
    assert model.encode([{"text": ["qzzyx"]}]).shape == found[:1].shape
    unusable: list[dict[str, Any]] = [{"text": ["a"], "image": []}, {"audio": []}]
    for batch in unusable:
        with pytest.raises(EmbeddingsError, match="tasks of the categories i2t and t2i"):
            model.encode([batch])


@pytest.mark.parametrize("name", ["order", *CROSS_ATTENTIONS])
def test_a_similarity_that_depends_on_the_side_is_refused(
    made: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = SimpleNamespace(experiment="e", head=SimpleNamespace(similarity=name))
    monkeypatch.setattr("pipeline.retrieval.query.mteb_encoder.load_head", lambda _: trained)
    with pytest.raises(EmbeddingsError, match=f"has the similarity {name}"):
        MtebEncoder(made / "head", made / "encoder")


@pytest.mark.filterwarnings("ignore")
def test_a_task_of_mteb_has_the_figures_of_evaluate(made: Path, tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    model = MtebEncoder(made / "head", made / "encoder")
    rng = np.random.default_rng(1)
    images = [Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8)) for _ in range(8)]
    words = ["a", "red", "square", "on", "the", "grass", "two", "blue", "dogs"]
    texts = [" ".join(rng.choice(words, 4)) for _ in range(24)]
    image_ids, owners = [f"i{n}" for n in range(8)], [f"i{n // 3}" for n in range(24)]
    caption_ids = [f"i{n // 3}#{n % 3}" for n in range(24)]
    space = Embeddings(
        image_ids, model.encode([{"image": images}]), caption_ids, owners,
        model.encode([{"text": texts}]), model.trained.head.similarity, {},
    )  # fmt: skip
    table = recall_table(space)

    class Task(AbsTaskRetrieval):
        metadata: TaskMetadata

        def __init__(self, category: str, split: dict[str, Any]) -> None:
            self.metadata = TaskMetadata(
                name=f"Drawn{category}", type="Any2AnyRetrieval", category=category,
                modalities=["image", "text"], main_score="ndcg_at_10", description="drawn",
                reference=None, dataset={"path": "drawn", "revision": "1"}, eval_splits=["test"],
                eval_langs=["eng-Latn"], date=None, domains=[], task_subtypes=[], license=None,
                annotations_creators=None, dialect=[], sample_creation=None, bibtex_citation="",
            )  # fmt: skip
            super().__init__()
            self.dataset = {"default": {"test": {**split, "top_ranked": None}}}
            self.data_loaded = True

    sides = (
        Dataset.from_dict({"id": image_ids, "image": images}),
        Dataset.from_dict({"id": caption_ids, "text": texts}),
    )
    for direction, category, (queries, corpus) in zip(
        DIRECTIONS, ("i2t", "t2i"), (sides, sides[::-1]), strict=True
    ):
        pairs = zip(caption_ids, owners, strict=True)
        relevant: dict[str, dict[str, int]] = {}
        for caption, image in pairs:
            query, item = (image, caption) if category == "i2t" else (caption, image)
            relevant.setdefault(query, {})[item] = 1

        split = {"queries": queries, "corpus": corpus, "relevant_docs": relevant}
        result = mteb.evaluate(model, Task(category, split), cache=None, show_progress_bar=False)
        (scores,) = result.task_results[0].scores["test"]
        grades = {query: dict.fromkeys(of, 1.0) for query, of in relevant.items()}
        judged = relevance_figures(space, rows_of(grades, space))
        for k in (1, 5, 10):  # theirs have five decimals
            hits, gain = 100 * scores[f"hit_rate_at_{k}"], 100 * scores[f"ndcg_at_{k}"]
            assert hits == pytest.approx(table[f"{direction}_r{k}"], abs=1e-3)
            assert gain == pytest.approx(judged[f"ndcg_{k}"], abs=1e-3)
