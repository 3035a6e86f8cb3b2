"""What a report asks a head, on drawn scenes with tiny heads: planes of words, distances, gaps."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.decomposition import PCA

from pipeline.datasets.manifest import read_manifest
from pipeline.heads.trained_head import load_head
from pipeline.report.analysis.breakdowns import words_of
from pipeline.report.data.results import Folders
from pipeline.report.pages.html import write_html
from pipeline.retrieval.embeddings import read_embeddings
from pipeline.search.query_embedding import embed_sentences
from pipeline.search.query_models import open_encoder
from pipeline.shards.feature_set import FeatureSet
from stages.cli import main
from tests.project import PROJECT

IMAGES, CAPTIONS = "efficientnet-lite0-pool", "mean-glove-6b-50d"
RIDGE, WORDS = "ridge-tiny", "gru-tiny"


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
        ("prepare", "scenes", "--images", "40", "--out", "data/scenes"),
        ("extract", "--recipe", IMAGES, *dataset, "--out", f"data/features/scenes/{IMAGES}"),
        ("text", "--encoder", "mean", *dataset, "--out", f"data/text/scenes/{CAPTIONS}"),
        ("text", "--encoder", "token-ids", *dataset, "--out", "data/text/scenes/token-ids"),
        *((step, "--experiment", name) for name in (RIDGE, WORDS) for step in ("train", "embed")),
        *(("evaluate", f"data/embeddings/scenes/{name}.h5", "--out", f"data/reports/{name}")
          for name in (RIDGE, WORDS)),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for command in commands:
            patched.setattr(sys, "argv", ["pipeline", *command])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code
    data = folder / "data"
    return Folders(
        data / "reports",
        data / "embeddings/scenes",
        data / "heads/scenes",
        data,
        data / "text",
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _write(folders: Folders, out: Path) -> tuple[str, ...]:
    return write_html(out, [RIDGE, WORDS], folders, lambda done: None)


def test_words_lie_where_their_head_puts_them(made: Folders, tmp_path: Path) -> None:
    # The small training split lacks one of the words.
    (gap,) = _write(made, tmp_path)
    assert gap == f"{WORDS}: Not in the plane of words, since its encoder does not know them: ball."
    entries = {e.id: e for e in read_manifest(made.datasets / "scenes").entries}
    for name, encoder in ((RIDGE, CAPTIONS), (WORDS, "token-ids")):
        rows = _rows(tmp_path / f"figures/{name}-words.csv")
        words = [row["word"] for row in rows if not row["image"]]
        assert len(words) == len(set(words)) == 8 - (name == WORDS)
        images = [row["image"] for row in rows if row["image"]]
        assert len(images) == len(set(images))
        for row in rows:
            if row["image"]:
                spoken = entries[row["image"]].captions
                assert any(row["word"] in words_of(text) for text in spoken)
        e = read_embeddings(made.embeddings / f"{name}.h5")
        folder = made.text / "scenes" / f"{encoder}.encoder"
        trained = load_head(made.heads / name)
        spoken_of = embed_sentences(trained, open_encoder(trained, folder, words), words, print)
        seen = e.image_embeddings[[e.image_ids.index(one) for one in images]]
        sides = [side.astype(float) for side in (spoken_of, seen)]
        if e.similarity == "cosine":
            sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
        together = np.concatenate([side - side.mean(axis=0) for side in sides])
        expected = PCA(2).fit_transform(together)
        found = [[float(row[f"component_{k}"]) for k in (1, 2)] for row in rows]
        assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-5)
        svg = (tmp_path / f"figures/{name}-words.svg").read_text()
        assert svg.count("data:image/jpeg;base64,") == len(images)


def test_distances_before_and_after_the_head(made: Folders, tmp_path: Path) -> None:
    _write(made, tmp_path)
    rows = {row["experiment"]: row for row in _rows(tmp_path / "figures/distances-1.csv")}
    e = read_embeddings(made.embeddings / f"{RIDGE}.h5")
    before = FeatureSet(made.text / "scenes" / CAPTIONS).read(e.caption_ids)
    for sides, prefix in ((before, "features_"), (e.caption_embeddings, "")):
        units = sides / np.linalg.norm(sides.astype(float), axis=1, keepdims=True)
        apart: dict[bool, list[float]] = {True: [], False: []}
        for i, one in enumerate(e.caption_image_ids):
            for j, other in enumerate(e.caption_image_ids):
                if i != j:
                    apart[one == other].append(1 - float(units[i] @ units[j]))
        for kind, key in ((True, "within"), (False, "between")):
            assert float(rows[RIDGE][prefix + key]) == pytest.approx(np.mean(apart[kind]), abs=1e-6)
    assert rows[WORDS]["features_within"] == ""  # token ids lie nowhere
    drawn = (tmp_path / "figures/distances-1.svg").read_text(encoding="utf-8")
    assert drawn.count("no grey line: token ids") == 1
    assert float(rows[WORDS]["within"]) < float(rows[WORDS]["between"])


def test_both_directions_are_drawn_by_epoch(made: Folders, tmp_path: Path) -> None:
    _write(made, tmp_path)
    history = json.loads((made.heads / WORDS / "history.json").read_text())
    rows = _rows(tmp_path / f"figures/{WORDS}-r10-by-epoch.csv")
    for start, column in (("an image", "image_to_text_r10"), ("a sentence", "text_to_image_r10")):
        drawn = [float(row["R@10"]) for row in rows if row["curve"].startswith(start)]
        assert drawn == [entry[column] for entry in history]
    assert not (tmp_path / f"figures/{RIDGE}-r10-by-epoch.csv").exists()


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("text/scenes/token-ids.encoder", "No plane of words and images"),
        ("text/scenes/token-ids", "no folder of"),
        ("heads/scenes/gru-tiny/head.json", "holds no trained head"),
    ],
)
def test_what_cannot_be_asked_is_said(made: Folders, tmp_path: Path, gone: str, told: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(made.datasets, data)
    path = data / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    folders = Folders(
        data / "reports",
        data / "embeddings/scenes",
        data / "heads/scenes",
        data,
        data / "text",
    )
    gaps = _write(folders, tmp_path / "html")
    assert any(gap.startswith(f"{WORDS}: ") and told in gap for gap in gaps)
    assert all(gap.startswith(WORDS) for gap in gaps if "changed" not in gap)
    assert not (tmp_path / f"html/figures/{WORDS}-words.svg").exists()
    assert (tmp_path / f"html/figures/{RIDGE}-words.svg").is_file()
