"""`pipeline search`, `caption`, `score` and `probe` on drawn scenes with a tiny head."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml

from pipeline.datasets.manifest import read_manifest
from pipeline.retrieval.embedding_file import read_embeddings
from tests.project import Call, Ended
from tests.stages.conftest import LITE, NAME

SENTENCE = "A red square above a blue circle."


def lines_of(ended: Ended) -> list[list[str]]:
    assert ended.status == 0, ended.stderr
    return [line.split("\t") for line in ended.stdout.splitlines()]


def test_a_sentence_finds_images(within: Path, pipeline: Call) -> None:
    command = ("search", SENTENCE, "--experiment", NAME, "--top", 4)
    lines = lines_of(pipeline(*command))
    entries = {entry.id: entry for entry in read_manifest(Path("data/scenes")).entries}
    assert [line[0] for line in lines] == ["1", "2", "3", "4"]
    scores = [float(line[1]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    for _, _, one, file, caption, split in lines:
        assert (entries[one].split, entries[one].captions[0]) == (split, caption)
        assert Path(file).name == entries[one].file
    answer = json.loads(pipeline(*command, "--json").stdout)
    assert (answer["of"], answer["similarity"]) == ("images", "cosine")
    (only,) = answer["answers"]
    assert only["query"] == {"sentence": SENTENCE}
    hits = [[hit["id"], f"{hit['score']:.6g}", hit["split"]] for hit in only["results"]]
    assert hits == [[line[2], line[1], line[5]] for line in lines]
    # The whole dataset is searched, or some splits of it; those of the tables as they were.
    every = [line[2:6:3] for line in lines_of(pipeline(*command[:-1], 99))]
    assert dict(every) == {one: e.split for one, e in entries.items()}
    for names in ("test", "train,val"):
        part = pipeline(*command[:-1], 99, "--split", names)
        of_splits = [hit for hit in every if hit[1] in names.split(",")]
        assert [line[2:6:3] for line in lines_of(part)] == of_splits
        assert f"images of split {names} by cosine" in part.stderr
    of_tables = ("--embeddings", f"data/embeddings/scenes/{NAME}.h5")
    alone = lines_of(pipeline(*command[:-1], 99, "--split", "test"))
    assert alone == lines_of(pipeline(*command[:-1], 99, *of_tables))


def test_the_searched_file_is_that_of_embed(copy: Path, pipeline: Call) -> None:
    file = Path(f"data/search/scenes/{NAME}.h5")
    embedded = file.read_bytes()
    file.unlink()
    assert pipeline("search", SENTENCE, "--experiment", NAME).status == 0
    assert file.read_bytes() == embedded


def test_several_queries_are_told_apart_and_escaped(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    (tmp_path / "queries").write_text(f"{SENTENCE}\nA green \x1b[2J fish.")
    search = ("search", "--experiment", NAME, "--top", 2)
    lines = lines_of(pipeline(*search, "--queries", tmp_path / "queries"))
    assert [len(line) for line in lines] == [1, 6, 6, 1, 6, 6]
    assert [lines[0], lines[3]] == [[SENTENCE], ["A green \\x1b[2J fish."]]
    assert lines[1:3] == lines_of(pipeline(*search, SENTENCE))
    (tmp_path / "queries").write_text("a fish\n\na square\n")
    refused = pipeline(*search, "--queries", tmp_path / "queries")
    assert (refused.status, "line 2 of 3, '', is empty" in refused.stderr) == (1, True)


def test_an_id_and_its_file_find_the_same_sentences(within: Path, pipeline: Call) -> None:
    stored = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    image_id, search = stored.image_ids[3], ("search", "--experiment", NAME, "--image")
    file = f"data/scenes/images/{image_id}.png"
    by_id, by_file = (lines_of(pipeline(*search, image)) for image in (image_id, file))
    assert [line[2] for line in by_id] == [line[2] for line in by_file]
    np.testing.assert_allclose(
        [float(line[1]) for line in by_id], [float(line[1]) for line in by_file], atol=1e-4
    )
    alike = pipeline(*search, image_id, "--of", "images", "--top", 99, "--split", "test")
    assert f"{image_id} itself is left out" in alike.stderr
    assert sorted(line[2] for line in lines_of(alike)) == sorted({*stored.image_ids} - {image_id})
    first = lines_of(pipeline(*search, file, "--of", "images"))[0]
    assert (first[2], first[1]) == (image_id, "1")


def test_an_ensemble_is_searched_by_all_of_its_members(within: Path, pipeline: Call) -> None:
    stored = read_embeddings(Path("data/ensembles/scenes/both.h5"))
    asked = ("search", "--image", stored.image_ids[0], "--experiment", "both", "--top")
    scores = stored.caption_embeddings @ stored.image_embeddings[0]
    nearest = [stored.caption_ids[row] for row in np.argsort(-scores)[:3]]
    assert [line[2] for line in lines_of(pipeline(*asked, 3, "--split", "test"))] == nearest
    everything = pipeline(*asked, 999)
    assert "among 200 sentences of all splits by dot" in everything.stderr
    assert len(lines_of(everything)) == 200
    file = f"data/scenes/images/{stored.image_ids[0]}.png"
    for query in ((SENTENCE,), ("--image", file, "--of", "images")):
        by_name = {}
        for name in (NAME, "other", "both"):
            command = ("search", *query, "--experiment", name, "--split", "test", "--top", 99)
            (answer,) = json.loads(pipeline(*command, "--json").stdout)["answers"]
            by_name[name] = {hit["id"]: hit["score"] for hit in answer["results"]}
        mean = {i: (by_name[NAME][i] + by_name["other"][i]) / 2 for i in by_name[NAME]}
        assert by_name["both"] == pytest.approx(mean, abs=1e-5)


def test_composition_is_that_of_the_paper(within: Path, pipeline: Call) -> None:
    stored = read_embeddings(Path(f"data/embeddings/scenes/{NAME}.h5"))
    image_id, search = stored.image_ids[0], ("search", "--experiment", NAME, "--split", "test")

    def hits_of(*query: object) -> list[dict[str, object]]:
        (answer,) = json.loads(pipeline(*search, *query, "--json").stdout)["answers"]
        return list(answer["results"])

    query = ("--image", image_id, "--minus", "red", "--plus", "blue")
    hits = hits_of(*query, "--top", 9)
    # The two words' vectors from the searches by each of them: images are a basis of the space.
    images = stored.image_embeddings.astype(np.float64)
    scores = {w: {h["id"]: h["score"] for h in hits_of(w, "--top", 99)} for w in ("red", "blue")}
    products = {
        other: float(images[0] @ row) - scores["red"][other] + scores["blue"][other]  # type: ignore[operator]
        for other, row in zip(stored.image_ids, images, strict=True)
        if other != image_id
    }
    assert [hit["id"] for hit in hits] == sorted(products, key=lambda i: -products[i])
    ratio = [hit["score"] / products[str(hit["id"])] for hit in hits]  # type: ignore[operator]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)

    lines = lines_of(pipeline(*search, *query, "--top", 2, "--around-mean", 5))
    rows = np.array([images[stored.image_ids.index(str(hit["id"]))] for hit in hits[:5]])
    far = np.argsort(np.linalg.norm(rows - rows.mean(axis=0), axis=1))[:2]
    assert [line[1:3] for line in lines] == [
        [f"{hits[k]['score']:.6g}", hits[k]["id"]] for k in far
    ]


def test_what_does_not_belong_together_is_refused_or_logged(copy: Path, pipeline: Call) -> None:
    embeddings = Path(f"data/embeddings/scenes/{NAME}.h5")
    command = ("search", SENTENCE, "--experiment", NAME, "--embeddings", embeddings)

    def record(provenance: dict[str, object]) -> None:
        with h5py.File(embeddings, "r+") as file:
            file.attrs["provenance"] = json.dumps(provenance)

    with h5py.File(embeddings) as file:
        provenance = json.loads(file.attrs["provenance"])
    record({**provenance, "manifest_sha256": "other"})
    assert "has changed since it was embedded" in pipeline(*command).stderr
    record({**provenance, "seed": 5})
    assert "differs in seed (5 in the file, 0 in the head)" in pipeline(*command).stderr
    record(provenance)
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
    of_id = pipeline("search", "--image", image_id, "--experiment", NAME)
    assert len(lines_of(of_id)) == 5
    assert "run `pipeline train`" in pipeline(*command).stderr
    with h5py.File(embeddings, "r+") as file:
        file["images/id"][0] = file["captions/image_id"][:5] = "stranger"
    assert "first ['stranger']" in pipeline(*command).stderr


def test_an_index_finds_what_the_exact_search_finds(copy: Path, pipeline: Call) -> None:
    pytest.importorskip("faiss", reason="needs the extra search")
    command = ("search", SENTENCE, "--experiment", NAME)
    ended = pipeline(*command, "--approximate")
    assert "recall@10 1.000" in ended.stderr
    assert lines_of(ended) == lines_of(pipeline(*command))
    assert "is made" not in pipeline(*command, "--approximate").stderr
    # The file of the test split has an index of its own; that of the whole file serves others.
    for split in ("test", "train"):
        ended = pipeline(*command, "--approximate", "--split", split)
        assert lines_of(ended) == lines_of(pipeline(*command, "--split", split))
        where = pipeline(*command, "--where", f"split={split}", "--where", "id~[02468]$")
        assert {row[-1] for row in lines_of(where)} == {split}
        assert f"of all splits where split={split} and id~[02468]$ by" in where.stderr


def test_features_are_searched_without_dataset_and_experiment(within: Path, pipeline: Call) -> None:
    command = ("search", "--image", "scene-00003", "--features", f"data/features/scenes/{LITE}")
    ended = pipeline(*command, "--top", 4)
    lines = lines_of(ended)
    assert [line[0] for line in lines] == ["1", "2", "3", "4"]
    assert "scene-00003" not in [line[2] for line in lines]
    assert "among 40 rows by cosine" in ended.stderr
    (answer,) = json.loads(pipeline(*command, "--top", 4, "--json").stdout)["answers"]
    assert [hit["id"] for hit in answer["results"]] == [line[2] for line in lines]
    for wrong in (("--experiment", NAME), ("--dataset", "data/scenes"), ("--regularities",)):
        refused = pipeline(*command, *wrong)
        assert (refused.status, "--features accepts only --image" in refused.stderr) == (2, True)


def test_regularities_count_re_sorted_images_too(copy: Path, pipeline: Call) -> None:
    command = ("search", "--regularities", "--around-mean", 9, "--experiment", NAME)
    ended = pipeline(*command)
    assert ended.status == 0, ended.stderr
    assert "| both | both: re-sorted | both: image alone |" in ended.stdout
    kinds = json.loads(pipeline(*command, "--json").stdout)
    assert kinds == json.loads(Path(f"data/regularities/scenes/{NAME}.json").read_text())["kinds"]
    assert all("resorted_both" in row for row in kinds.values())


def test_an_experiment_describes_images_and_a_split(
    within: Path, pipeline: Call, tmp_path: Path
) -> None:
    """By its nearest training captions, which `pipeline score` finds to be copies."""
    (tmp_path / "none.png").write_bytes(b"no image")
    command = ("caption", "--experiment", NAME, "--baseline", "nearest", "--top", 2)
    image = "data/scenes/images/scene-00002.png"
    ended = pipeline(*command, image, tmp_path / "none.png", "--out", tmp_path / "mine.jsonl")
    lines = [line.split("\t") for line in ended.stdout.splitlines()]
    assert ended.status == 3
    assert [line[:2] for line in lines] == [
        [image, "1"], [image, "2"], [str(tmp_path / "none.png"), ""],
    ]  # fmt: skip
    assert "unreadable" in lines[2][3]
    assert len((tmp_path / "mine.jsonl").read_text().splitlines()) == 2
    assert "no device is called 'abacus'" in pipeline(*command, image, "--device", "abacus").stderr
    split = (*command, "--out", tmp_path / "all.jsonl", "--device", "cpu:0")
    assert pipeline(*split).status == 0
    all_lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    by_image = {line["image_id"]: line["caption"] for line in all_lines}
    assert by_image["scene-00002"] == lines[0][3]
    scored = ("score", tmp_path / "all.jsonl", "--out", tmp_path / "scores", "--ranked-by", NAME)
    ended = pipeline(*scored)
    assert ended.status == 0, ended.stderr
    row = json.loads((tmp_path / "scores/all/captions.json").read_text())
    assert (row["num_images"], row["verbatim"], row["parsed"]) == (len(by_image), 100, 100)
    assert row["finds_image_r10"] > 0
    assert ended.stdout.splitlines()[-1].startswith("| all |")


@pytest.mark.parametrize("name", [NAME, "both"])
def test_probe_prints_tables_and_writes_all_of_it(
    name: str, within: Path, pipeline: Call, tmp_path: Path
) -> None:
    """The file has what the printed JSON has; a mean of word vectors does not see their order."""
    command = ("probe", "--experiment", name, "--out", tmp_path / "probes.json")
    ended = pipeline(*command, "--json")
    assert ended.status == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found == json.loads((tmp_path / "probes.json").read_text())
    assert (found["train"], found["test"], found["truth"]) == ("train", "test", "exact")
    shuffled = found["foils"]["shuffled words"]
    assert (shuffled["pairs"], shuffled["ties"]) == (35, 100)
    assert "| shuffled words | 35 | 50.0 | 100.0 | 50.0 |" in pipeline(*command).stdout
