"""`pipeline search` on drawn scenes with a tiny head: what it finds, prints and refuses."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.retrieval.embedding_file import read_embeddings
from tests.images.networks import narrow
from tests.in_process import status_of
from tests.project import PROJECT, Call, Ended

LITE, MEAN = "efficientnet-lite0-pool", "mean-glove-6b-50d"
NAME, RIDGE = "two-branch-tiny", "ridge-tiny"
SETTINGS = {"hidden": 64, "dim": 32, "epochs": 3, "batch_size": 50}
SENTENCE = "A red square above a blue circle."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with 40 scenes, features, two heads and their embeddings of the test split."""
    folder = tmp_path_factory.mktemp("search")
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    features = {"images": LITE, "captions": MEAN}
    params["ensembles"] = {"both": {NAME: 1.0, "other": 1.0}, "unmade": {NAME: 1.0, "other": 1.0}}
    params["experiments"] = {
        NAME: {**features, "head": "two-branch", "settings": SETTINGS},
        RIDGE: {**features, "head": "ridge"},
        "other": {**features, "head": "two-branch", "settings": {**SETTINGS, "dim": 16}},
        "untrained": {**features, "head": "ridge"},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    dataset = ("--dataset", "data/scenes")
    commands = [
        ("prepare", "scenes", "--num-images", "40", "--out", "data/scenes"),
        ("extract", "--recipe", LITE, *dataset, "--out", f"data/features/scenes/{LITE}"),
        ("text", "--encoder", "mean", *dataset, "--out", f"data/text/scenes/{MEAN}"),
        ("text", "--encoder", "tfidf", *dataset, "--out", "data/text/scenes/tfidf"),
        *(
            (step, "--experiment", name)
            for name in (NAME, RIDGE, "other")
            for step in ("train", "embed")
        ),
        ("ensemble", "--name", "both"),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setitem(BACKBONES, narrow.NAME, narrow.NARROW)
        for command in commands:
            assert status_of(*command) == 0
    return folder


@pytest.fixture
def within(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as the current folder; nothing in it may be changed."""
    monkeypatch.chdir(made)
    return made


def found(ended: Ended) -> list[list[str]]:
    assert ended.status == 0, ended.stderr
    return [line.split("\t") for line in ended.stdout.splitlines()]


def test_a_sentence_finds_images(within: Path, pipeline: Call) -> None:
    command = ("search", SENTENCE, "--experiment", NAME, "--top", 4)
    lines = found(pipeline(*command))
    entries = {entry.id: entry for entry in read_manifest(Path("data/scenes")).entries}
    assert [line[0] for line in lines] == ["1", "2", "3", "4"]
    scores = [float(line[1]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    for _, _, one, file, caption, split in lines:
        assert entries[one].split == split
        assert Path(file).name == entries[one].file
        assert caption == entries[one].captions[0]
    answer = json.loads(pipeline(*command, "--json").stdout)
    assert (answer["of"], answer["similarity"]) == ("images", "cosine")
    (only,) = answer["answers"]
    assert only["query"] == {"sentence": SENTENCE}
    assert [hit["id"] for hit in only["results"]] == [line[2] for line in lines]
    assert [f"{hit['score']:.6g}" for hit in only["results"]] == [line[1] for line in lines]
    assert [hit["split"] for hit in only["results"]] == [line[5] for line in lines]
    # The whole dataset is searched, or some splits of it; those of the tables as they were.
    every = [line[2:6:3] for line in found(pipeline(*command[:-1], 99))]
    assert dict(every) == {one: e.split for one, e in entries.items()}
    for names in ("test", "train,val"):
        part = pipeline(*command[:-1], 99, "--split", names)
        of_splits = [hit for hit in every if hit[1] in names.split(",")]
        assert [line[2:6:3] for line in found(part)] == of_splits
        assert f"images of split {names} by cosine" in part.stderr
    of_tables = ("--embeddings", f"data/embeddings/scenes/{NAME}.h5")
    alone = found(pipeline(*command[:-1], 99, "--split", "test"))
    assert alone == found(pipeline(*command[:-1], 99, *of_tables))
    refused = pipeline(*command, "--split", "dev")
    assert (refused.status, "no split 'dev'" in refused.stderr) == (1, True)


def test_embed_writes_all_splits_where_a_search_reads_them(within: Path, pipeline: Call) -> None:
    found(pipeline("search", SENTENCE, "--experiment", NAME))
    file = Path(f"data/search/scenes/{NAME}.h5")
    written = file.read_bytes()
    assert pipeline("embed", "--experiment", NAME, "--split", "all").status == 0
    assert file.read_bytes() == written
    names = {path.stem for path in Path("data/embeddings/scenes").glob("*.h5")}
    assert names == {NAME, RIDGE, "other"}


@pytest.mark.parametrize("name", [NAME, RIDGE])
def test_a_caption_of_the_file_is_embedded_as_it_was(
    name: str, within: Path, pipeline: Call, tmp_path: Path
) -> None:
    stored = read_embeddings(Path(f"data/embeddings/scenes/{name}.h5"))
    captions = {
        caption_id: text
        for entry in read_manifest(Path("data/scenes")).entries
        for caption_id, text in zip(entry.caption_ids, entry.captions, strict=True)
    }
    asked = stored.caption_ids[::9]
    (tmp_path / "queries").write_text("".join(f"{captions[caption_id]}\n" for caption_id in asked))
    ended = pipeline(
        *("search", "--queries", tmp_path / "queries", "--experiment", name),
        *("--of", "sentences", "--top", 1, "--json"),
    )
    answers = json.loads(ended.stdout)["answers"]
    assert len(answers) == len(asked)
    for answer, caption_id in zip(answers, asked, strict=True):
        (hit,) = answer["results"]
        assert hit["sentence"] == captions[caption_id] == answer["query"]["sentence"]
        assert hit["score"] == pytest.approx(1.0 if name == NAME else 0.0, abs=1e-6)


def test_several_queries_are_told_apart(within: Path, pipeline: Call, tmp_path: Path) -> None:
    (tmp_path / "queries").write_text(f"{SENTENCE}\nA green fish.")
    ended = pipeline("search", "--queries", tmp_path / "queries", "--experiment", NAME, "--top", 2)
    lines = found(ended)
    assert [len(line) for line in lines] == [1, 6, 6, 1, 6, 6]
    assert [lines[0], lines[3]] == [[SENTENCE], ["A green fish."]]
    assert lines[1:3] == found(pipeline("search", SENTENCE, "--experiment", NAME, "--top", 2))


def test_an_id_and_its_file_find_the_same_sentences(within: Path, pipeline: Call) -> None:
    stored = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    image_id = stored.image_ids[3]
    by_id = found(pipeline("search", "--image", image_id, "--experiment", NAME))
    by_file = found(
        pipeline("search", "--image", f"data/scenes/images/{image_id}.png", "--experiment", NAME)
    )
    assert [line[2] for line in by_id] == [line[2] for line in by_file]
    np.testing.assert_allclose(
        [float(line[1]) for line in by_id], [float(line[1]) for line in by_file], atol=1e-4
    )
    assert all(len(line) == 6 for line in by_id)

    command = ("search", "--image", image_id, "--experiment", NAME, "--of", "images", "--top", 99)
    alike = pipeline(*command, "--split", "test")
    assert f"{image_id} itself is left out" in alike.stderr
    assert sorted(line[2] for line in found(alike)) == sorted({*stored.image_ids} - {image_id})
    file = f"data/scenes/images/{image_id}.png"
    first = found(pipeline("search", "--image", file, "--experiment", NAME, "--of", "images"))[0]
    assert (first[2], first[1]) == (image_id, "1")


def test_an_ensemble_is_searched_by_all_of_its_members(within: Path, pipeline: Call) -> None:
    stored = read_embeddings(Path("data/ensembles/scenes/both.h5"))
    asked = ("search", "--image", stored.image_ids[0], "--experiment", "both", "--top", 3)
    command = (*asked, "--split", "test")
    scores = stored.caption_embeddings @ stored.image_embeddings[0]
    nearest = [stored.caption_ids[row] for row in np.argsort(-scores)[:3]]
    assert [line[2] for line in found(pipeline(*command))] == nearest
    everything = pipeline(*asked[:-1], 999)
    assert "among 200 sentences of all splits by dot" in everything.stderr
    assert len(found(everything)) == 200
    file = f"data/scenes/images/{stored.image_ids[0]}.png"
    for query in ((SENTENCE,), ("--image", file, "--of", "images")):
        scores = {}
        for name in (NAME, "other", "both"):
            command = ("search", *query, "--experiment", name, "--split", "test", "--top", 99)
            (answer,) = json.loads(pipeline(*command, "--json").stdout)["answers"]
            scores[name] = {hit["id"]: hit["score"] for hit in answer["results"]}
        mean = {image: (scores[NAME][image] + scores["other"][image]) / 2 for image in scores[NAME]}
        assert scores["both"] == pytest.approx(mean, abs=1e-5)
    refused = pipeline("search", SENTENCE, "--experiment", "unmade")
    assert (refused.status, "`pipeline run unmade --dataset" in refused.stderr) == (1, True)


def test_composition_is_that_of_the_paper(within: Path, pipeline: Call, tmp_path: Path) -> None:
    stored = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    image_id = stored.image_ids[0]
    query = ("--image", image_id, "--minus", "red", "--plus", "blue")
    command = ("search", *query, "--experiment", NAME, "--split", "test")
    answer = json.loads(pipeline(*command, "--top", 9, "--json").stdout)
    assert answer["answers"][0]["query"] == {"image": image_id, "minus": ["red"], "plus": ["blue"]}
    hits = answer["answers"][0]["results"]

    # The two words' vectors from the searches by each of them: images are a basis of the space.
    images = stored.image_embeddings.astype(np.float64)
    scores = {}
    for word in ("red", "blue"):
        found_by = json.loads(
            pipeline(
                *("search", word, "--experiment", NAME, "--top", 99, "--json", "--split", "test")
            ).stdout
        )["answers"][0]["results"]
        scores[word] = {hit["id"]: hit["score"] for hit in found_by}
    products = {
        other: float(images[0] @ row) - scores["red"][other] + scores["blue"][other]
        for other, row in zip(stored.image_ids, images, strict=True)
        if other != image_id
    }
    assert [hit["id"] for hit in hits] == sorted(products, key=lambda i: -products[i])
    ratio = [hit["score"] / products[hit["id"]] for hit in hits]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)

    ended = pipeline(*command, "--top", 2, "--around-mean", 5)
    nearest = [hit["id"] for hit in hits[:5]]
    rows = np.array([images[stored.image_ids.index(i)] for i in nearest])
    far = np.linalg.norm(rows - rows.mean(axis=0), axis=1)
    assert [line[2] for line in found(ended)] == [nearest[k] for k in np.argsort(far)[:2]]
    assert [line[1] for line in found(ended)] == [
        f"{hits[k]['score']:.6g}" for k in np.argsort(far)[:2]
    ]


def test_regularities_count_re_sorted_images_too(
    made: Path, pipeline: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    command = ("search", "--regularities", "--around-mean", 9, "--experiment", NAME)
    ended = pipeline(*command)
    assert ended.status == 0, ended.stderr
    assert "| both | both: re-sorted | both: image alone |" in ended.stdout
    kinds = json.loads(pipeline(*command, "--json").stdout)
    stored = json.loads(Path(f"data/regularities/scenes/{NAME}.json").read_text())
    assert kinds == stored["kinds"]
    assert all("resorted_both" in row for row in kinds.values())


def test_control_characters_of_data_are_escaped(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    (tmp_path / "queries").write_text("A red \x1b[2J square.\nA green fish.\n")
    ended = pipeline("search", "--queries", tmp_path / "queries", "--experiment", NAME)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.startswith("A red \\x1b[2J square.\n")
    assert "\x1b" not in ended.stdout + ended.stderr


def test_an_unknown_experiment_is_wrong_usage(within: Path, pipeline: Call) -> None:
    ended = pipeline("search", SENTENCE, "--experiment", "untraind")
    assert (ended.status, "did you mean untrained" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((SENTENCE, "--experiment", "untrained"), "`pipeline run untrained --dataset data/"),
        (("  ", "--experiment", NAME), "is empty"),
        (("xqzzy wvvk", "--experiment", NAME), "knows no word of the query"),
        (("--image", "absent.png", "--experiment", NAME), "nor a file"),
        (("--image", "params.yaml", "--experiment", NAME), "params.yaml is unreadable"),
        (("--image", "ONE", "--minus", "qzzyx", "--experiment", NAME), "the query 'qzzyx'"),
        (("--image", "ONE", "--plus", "red", "--experiment", RIDGE), "euclidean"),
        (("--image", "ONE", "--of", "images", "--around-mean", 9, "--experiment", RIDGE), "cosine"),
        ((SENTENCE, "--experiment", NAME, "--head", f"data/heads/scenes/{RIDGE}"), "differs in"),
        ((SENTENCE, "--experiment", NAME, "--encoder", "data/text/scenes/tfidf.encoder"), "hash"),
        ((SENTENCE, "--experiment", NAME, "--encoder", "nowhere"), "no fitted encoder"),
        (
            (SENTENCE, "--experiment", NAME, "--embeddings", "nowhere.h5"),
            "nowhere.h5: no such embedding",
        ),
        (("--image", "FILE", "--experiment", NAME, "--weights", "random:1"), "not the one that"),
        (("--queries", "TEXTS", "--experiment", NAME), "texts: line 2 of 3, '', is empty"),
        ((SENTENCE, "--experiment", NAME, "--dataset", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_end_in_one_paragraph(
    arguments: tuple[object, ...],
    expected: str,
    within: Path,
    pipeline: Call,
    tmp_path: Path,
) -> None:
    image_id = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5")).image_ids[0]
    (tmp_path / "texts").write_text("a fish\n\na square\n")
    file = f"data/scenes/images/{image_id}.png"
    real = {"ONE": image_id, "FILE": file, "TEXTS": tmp_path / "texts"}
    ended = pipeline("search", *(real.get(str(a), a) for a in arguments))
    assert ended.status == 1
    assert expected in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("pipeline: error: ")
    assert not ended.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "pass one of SENTENCE"),
        ((SENTENCE, "--image", "x"), "pass one of SENTENCE"),
        ((SENTENCE, "--plus", "red"), "need --image"),
        ((SENTENCE, "--around-mean", 2), "fewer than --top 5"),
        ((SENTENCE, "--top", 0), "--top"),
        (("--regularities", SENTENCE), "accepts only --around-mean and --json"),
        (("--regularities", "--around-mean", 4), "--around-mean 4 is fewer than the 5 hits"),
    ],
)
def test_wrong_usage(
    arguments: tuple[object, ...], expected: str, within: Path, pipeline: Call
) -> None:
    ended = pipeline("search", *arguments, "--experiment", NAME)
    assert ended.status == 2
    assert expected in ended.stderr


def test_what_does_not_belong_together_is_refused_or_said(
    made: Path, pipeline: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    embeddings = Path(f"data/embeddings/scenes/{NAME}.h5")
    command = ("search", SENTENCE, "--experiment", NAME, "--embeddings", embeddings)
    with h5py.File(embeddings, "r+") as file:
        provenance = json.loads(file.attrs["provenance"])
        file.attrs["provenance"] = json.dumps({**provenance, "manifest_sha256": "other"})
    assert "has changed since it was embedded" in pipeline(*command).stderr
    with h5py.File(embeddings, "r+") as file:
        file.attrs["provenance"] = json.dumps({**provenance, "seed": 5})
    assert "differs in seed (5 in the file, 0 in the head)" in pipeline(*command).stderr
    with h5py.File(embeddings, "r+") as file:
        file.attrs["provenance"] = json.dumps(provenance)
    assert pipeline(*command).status == 0
    params = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump({**params, "max_epochs": 1}))
    shutil.rmtree(f"data/heads/scenes/{NAME}")
    assert pipeline("train", "--experiment", NAME).status == 0
    refused = pipeline(*command).stderr
    assert "differs in settings, tensors_sha256 (" in refused
    assert f"recompute it with `pipeline embed --experiment {NAME}`" in refused
    assert pipeline("embed", "--experiment", NAME).status == 0
    assert pipeline(*command).status == 0
    # The stored embedding of an id needs neither head nor encoder.
    shutil.rmtree("data/heads")
    image_id = read_embeddings(embeddings).image_ids[0]
    ended = pipeline("search", "--image", image_id, "--experiment", NAME)
    assert len(found(ended)) == 5
    assert "run `pipeline train`" in pipeline(*command).stderr
    with h5py.File(embeddings, "r+") as file:
        file["images/id"][0] = file["captions/image_id"][:5] = "stranger"
    assert "first ['stranger']" in pipeline(*command).stderr


def test_the_index_gives_what_the_exact_search_gives(
    made: Path, pipeline: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="needs the extra search")
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    command = ("search", SENTENCE, "--experiment", NAME)
    ended = pipeline(*command, "--approximate")
    assert "recall@10 1.000" in ended.stderr
    assert found(ended) == found(pipeline(*command))
    assert "is made" not in pipeline(*command, "--approximate").stderr
    # The file of the test split has an index of its own; that of the whole file serves others.
    for split in ("test", "train"):
        ended = pipeline(*command, "--approximate", "--split", split)
        assert found(ended) == found(pipeline(*command, "--split", split))
        where = pipeline(*command, "--where", f"split={split}", "--where", "id~[02468]$")
        assert {row[-1] for row in found(where)} == {split}
        assert f"of all splits where split={split} and id~[02468]$ by" in where.stderr
    refused = pipeline(*command, "--where", "splitt=test")
    assert (refused.status, "did you mean split?" in refused.stderr) == (1, True)


def test_an_experiment_describes_pictures_and_a_split(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    """By its nearest training captions, which `pipeline score` finds to be copies."""
    (tmp_path / "none.png").write_bytes(b"no picture")
    command = ("caption", "--experiment", NAME, "--baseline", "nearest", "--top", 2)
    image = "data/scenes/images/scene-00002.png"
    ended = pipeline(*command, image, tmp_path / "none.png", "--out", tmp_path / "mine.jsonl")
    lines = [line.split("\t") for line in ended.stdout.splitlines()]
    assert ended.status == 3
    assert [line[:2] for line in lines] == [[image, "1"], [image, "2"],
                                            [str(tmp_path / "none.png"), ""]]  # fmt: skip
    assert "unreadable" in lines[2][3]
    assert len((tmp_path / "mine.jsonl").read_text().splitlines()) == 2
    assert pipeline(*command, "--out", tmp_path / "all.jsonl").status == 0
    all_lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    by_image = {line["image_id"]: line["caption"] for line in all_lines}
    assert by_image["scene-00002"] == lines[0][3]
    ended = pipeline(
        *("score", tmp_path / "all.jsonl", "--out", tmp_path / "scores", "--ranked-by", NAME)
    )
    assert ended.status == 0, ended.stderr
    row = json.loads((tmp_path / "scores/all/captions.json").read_text())
    assert (row["num_images"], row["verbatim"], row["parsed"]) == (len(by_image), 100, 100)
    assert row["finds_image_r10"] > 0
    assert ended.stdout.splitlines()[-1].startswith("| all |")
    ended = pipeline("caption", image, "--experiment", NAME)
    assert (ended.status, "--baseline nearest" in ended.stderr) == (2, True)


def test_features_are_searched_without_dataset_and_experiment(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    features = ("--features", f"data/features/scenes/{LITE}")
    command = ("search", "--image", "scene-00003", *features, "--top", 4)
    ended = pipeline(*command)
    lines = found(ended)
    assert [line[0] for line in lines] == ["1", "2", "3", "4"]
    assert "scene-00003" not in [line[2] for line in lines]
    assert "among 40 rows by cosine" in ended.stderr
    answer = json.loads(pipeline(*command, "--json").stdout)
    assert [hit["id"] for hit in answer["answers"][0]["results"]] == [line[2] for line in lines]
    for wrong in (
        ("search", SENTENCE, *features),
        (*command, "--experiment", NAME),
        (*command, "--plus", "red"),
        (*command, "--dataset", "data/scenes"),
    ):
        refused = pipeline(*wrong)
        assert refused.status == 2
        assert "--features accepts only --image, --top, --weights and --json" in refused.stderr
    assert "pass --experiment NAME, or --image with --features" in pipeline("search", "a").stderr


def test_probe_prints_tables_and_writes_all_of_it(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    """The file has what the printed JSON has, and the words of scenes are exact."""
    out = tmp_path / "probes.json"
    ended = pipeline("probe", "--experiment", NAME, "--out", out, "--json")
    assert ended.status == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found == json.loads(out.read_text())
    assert (found["train"], found["test"], found["truth"]) == ("train", "test", "exact")
    assert found["foils"]["shuffled words"]["pairs"] == 35
    # The mean of word vectors does not see their order.
    assert found["foils"]["shuffled words"]["ties"] == 100
    table = pipeline("probe", "--experiment", NAME, "--out", out).stdout
    assert table.startswith("| question | questions | images |")
    assert "| shuffled words | 35 | 50.0 | 100.0 | 50.0 |" in table


def test_probe_of_an_ensemble(within: Path, pipeline: Call, tmp_path: Path) -> None:
    assert pipeline("probe").status == 2
    out = tmp_path / "x.json"
    assert pipeline("probe", "--experiment", "both", "--out", out).status == 0
    assert json.loads(out.read_text())["foils"]["shuffled words"]["pairs"] == 35
