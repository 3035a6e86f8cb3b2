"""What a report asks a head, on drawn scenes with tiny heads: planes of words, distances, gaps."""

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.decomposition import PCA

from pipeline.datasets.manifest import read_manifest
from pipeline.experiments.layout import Layout
from pipeline.heads.trained_head import load_head
from pipeline.retrieval.embedding_file import read_embeddings
from pipeline.retrieval.query.query_embedding import embed_sentences
from pipeline.retrieval.query.query_models import open_encoder
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.web.report.head_inspection import images_of, telling_words
from pipeline.web.report.pages import write_pages
from pipeline.web.report.results import Folders, Result, collect_results
from pipeline.web.report.retrievals import words_of
from tests.in_process import status_of
from tests.project import PROJECT

IMAGES, CAPTIONS = "efficientnet-lite0-pool", "mean-glove-6b-50d"
RIDGE, WORDS = "ridge-tiny", "gru-tiny"


def _folders(data: Path) -> Folders:
    layout = Layout.of("scenes", data)
    return Folders(
        layout.evaluations, layout.embedding_folders, layout.heads, layout.dataset, layout.texts
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """40 scenes, a head of vectors and one of token ids, their embeddings and tables."""
    folder = tmp_path_factory.mktemp("report")
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    tiny = {"dim": 16, "word_dim": 8, "epochs": 2, "similarity": "cosine", "l2_normalise": "both"}
    params["experiments"] = {
        RIDGE: {"images": IMAGES, "captions": CAPTIONS, "head": "ridge"},
        WORDS: {"images": IMAGES, "captions": "token-ids", "head": "vse", "settings": tiny},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    dataset = ("--dataset", "data/scenes")
    commands = [
        ("prepare", "scenes", "--num-images", "40", "--out", "data/scenes"),
        ("extract", "--recipe", IMAGES, *dataset, "--out", f"data/features/scenes/{IMAGES}"),
        ("text", "--encoder", "mean", *dataset, "--out", f"data/text/scenes/{CAPTIONS}"),
        ("text", "--encoder", "token-ids", *dataset, "--out", "data/text/scenes/token-ids"),
        *((step, "--experiment", name) for name in (RIDGE, WORDS) for step in ("train", "embed")),
        *(("evaluate", f"data/embeddings/scenes/{name}.h5",
           "--out", f"data/evaluations/scenes/{name}") for name in (RIDGE, WORDS)),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for command in commands:
            assert status_of(*command) == 0
    return _folders(folder / "data")


@pytest.fixture(scope="module")
def figures(made: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the figures of both heads' report."""
    out = tmp_path_factory.mktemp("html")
    # The small training split lacks one of the words.
    (gap,) = write_pages(out, [RIDGE, WORDS], made)
    assert gap == f"{WORDS}: Not in the plane of words, since its encoder does not know them: ball."
    return out / "figures"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_words_lie_where_their_head_puts_them(made: Folders, figures: Path) -> None:
    entries = {e.id: e for e in read_manifest(made.dataset).entries}
    for name, encoder in ((RIDGE, CAPTIONS), (WORDS, "token-ids")):
        rows = _rows(figures / f"{name}-words.csv")
        words = [row["word"] for row in rows if not row["image"]]
        assert len(words) == len(set(words)) == 8 - (name == WORDS)
        images = [row["image"] for row in rows if row["image"]]
        assert len(images) == len(set(images))
        for row in rows:
            if row["image"]:
                spoken = entries[row["image"]].captions
                assert any(row["word"] in words_of(text) for text in spoken)
        e = read_embeddings(made.embeddings[0] / f"{name}.h5")
        folder = made.text / f"{encoder}.encoder"
        trained = load_head(made.heads / name)
        spoken_of = embed_sentences(trained, open_encoder(trained, folder, words), words, print)
        seen = e.image_embeddings[[e.image_ids.index(image) for image in images]]
        sides = [side.astype(float) for side in (spoken_of, seen)]
        if e.similarity == "cosine":
            sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
        together = np.concatenate([side - side.mean(axis=0) for side in sides])
        expected = PCA(2).fit_transform(together)
        found = [[float(row[f"component_{k}"]) for k in (1, 2)] for row in rows]
        assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-5)
        svg = (figures / f"{name}-words.svg").read_text()
        assert svg.count("data:image/jpeg;base64,") == len(images)


def test_distances_before_and_after_the_head(made: Folders, figures: Path) -> None:
    rows = {row["experiment"]: row for row in _rows(figures / "distances-1.csv")}
    e = read_embeddings(made.embeddings[0] / f"{RIDGE}.h5")
    before = FeatureSet(made.text / CAPTIONS).read(e.caption_ids)
    for sides, prefix in ((before, "features_"), (e.caption_embeddings, "")):
        units = sides / np.linalg.norm(sides.astype(float), axis=1, keepdims=True)
        apart: dict[bool, list[float]] = {True: [], False: []}
        for i, image in enumerate(e.caption_image_ids):
            for j, other in enumerate(e.caption_image_ids):
                if i != j:
                    apart[image == other].append(1 - float(units[i] @ units[j]))
        for kind, key in ((True, "within"), (False, "between")):
            assert float(rows[RIDGE][prefix + key]) == pytest.approx(np.mean(apart[kind]), abs=1e-6)
    assert rows[WORDS]["features_within"] == ""  # token ids lie nowhere
    drawn = (figures / "distances-1.svg").read_text(encoding="utf-8")
    assert drawn.count("no grey line: token ids") == 1
    assert float(rows[WORDS]["within"]) < float(rows[WORDS]["between"])


def test_both_directions_are_drawn_by_epoch(made: Folders, figures: Path) -> None:
    history = json.loads((made.heads / WORDS / "history.json").read_text())
    rows = _rows(figures / f"{WORDS}-r10-by-epoch.csv")
    for start, column in (("an image", "image_to_text_r10"), ("a sentence", "text_to_image_r10")):
        drawn = [float(row["R@10"]) for row in rows if row["curve"].startswith(start)]
        assert drawn == [entry[column] for entry in history]
    assert not (figures / f"{RIDGE}-r10-by-epoch.csv").exists()


@pytest.fixture
def changed(made: Folders, tmp_path: Path) -> Folders:
    """A copy to be changed."""
    shutil.copytree(made.dataset.parent, tmp_path / "data")
    return _folders(tmp_path / "data")


def _results(folders: Folders) -> tuple[Result, Result]:
    ridge, words = collect_results([RIDGE, WORDS], folders, lambda done: None)
    return ridge, words


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("text/scenes/token-ids.encoder", "No plane of words and images"),
        ("text/scenes/token-ids", "no folder of"),
        ("heads/scenes/gru-tiny/head.json", "not found, expected the record of the trained head"),
    ],
)
def test_what_cannot_be_asked_is_said(changed: Folders, gone: str, reason: str) -> None:
    path = changed.dataset.parent / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    ridge, words = _results(changed)
    assert any(reason in gap for gap in words.gaps)
    assert all("changed" in gap for gap in ridge.gaps)
    assert words.word_plane is None
    assert ridge.word_plane is not None


def test_nothing_is_shown_of_another_head_or_of_other_features(changed: Folders) -> None:
    """Under the experiment's name is the head of another training, and captions were changed."""
    shutil.copytree(changed.heads / RIDGE, changed.heads / WORDS, dirs_exist_ok=True)
    index = changed.text / CAPTIONS / "index.json"
    values = json.loads(index.read_text())
    values["shards"][0]["content_sha256"] = "0" * 64
    index.write_text(json.dumps(values))
    ridge, words = _results(changed)
    file = changed.embeddings[0] / f"{WORDS}.h5"
    for result, start in (
        (ridge, f"No closeness of sentences before the head: no folder of {changed.text} holds"),
        (ridge, f"No plane of words and images: no folder of {changed.text} holds"),
        (words, f"No curve: {changed.heads / WORDS / 'head.json'} describes another head"),
        (words, f"No plane of words and images: {file} was not computed by the head"),
    ):
        assert sum(gap.startswith(start) for gap in result.gaps) == 1, result.gaps
    assert ridge.word_plane is words.word_plane is None
    assert words.history == ()


def test_telling_words_agree_with_a_loop_over_pairs() -> None:
    """Kappa from all ordered pairs of sentences of one image."""
    rng = random.Random(1)
    kinds = ("dog", "cat", "sea")
    captions = {
        f"i{k}": [f"a {kinds[k % 3]} {rng.choice(('runs', 'sits'))}" for _ in range(2 + k % 4)]
        for k in range(30)
    }
    captions["i0"] = ["a cat runs", "a dog runs"]
    captions["lonely"] = ["a whale"]
    kappas = {}
    texts = [set(words_of(t)) for of in captions.values() if len(of) > 1 for t in of]
    for word in ("dog", "cat", "sea", "runs", "sits"):
        share = sum(word in of for of in texts) / len(texts)
        others = [
            word in words_of(second)
            for of in captions.values()
            for i, first in enumerate(of)
            for j, second in enumerate(of)
            if i != j and word in words_of(first)
        ]
        kappas[word] = (sum(others) / len(others) - share) / (1 - share)
    expected = tuple(sorted(kappas, key=lambda word: (-kappas[word], word)))
    assert telling_words(captions, 3, 9) == expected
    assert set(expected[:3]) == set(kinds)
    assert telling_words(captions, 3, 2) == expected[:2]
    assert telling_words(captions, 31, 9) == ()
    assert telling_words({}, 1, 9) == ()


def test_of_singular_and_plural_the_more_frequent_is_kept() -> None:
    pairs = {"diamond": ["a diamond", "one diamond", "the diamond"], "many": ["two diamonds"] * 2,
             "boxes": ["boxes", "two boxes", "red boxes"], "box": ["a box", "the box"],
             "sea": ["a sea", "the sea"], "glass": ["glass"] * 2, "glas": ["glas"] * 2}  # fmt: skip
    found = telling_words(pairs, 1, 99)
    assert {"diamond", "boxes", "sea", "glas"} <= set(found)  # of equal ones the first
    assert not {"diamonds", "box", "glass"} & set(found)
    assert telling_words(pairs, 1, 2) == found[:2]


def test_an_image_speaks_of_one_word() -> None:
    captions = {"x": ["dog", "a dog", "sea"], "y": ["dog"], "z": ["sea", "sky"], "o": []}
    assert images_of(["dog", "sea"], captions, 2) == {"dog": ("y", "x"), "sea": ("z",)}
    assert images_of(["dog", "sea"], captions, 1) == {"dog": ("y",), "sea": ("z",)}
    assert images_of(["whale"], captions, 3) == {"whale": ()}
