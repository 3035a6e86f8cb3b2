"""`pipeline run` on features that were made elsewhere: names, links, tables, searches, refusals."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.manifest import read_manifest
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ranking.recall import recall_table
from pipeline.retrieval.tables import read_recall
from pipeline.store.builder.arrays import write_features
from pipeline.store.convert.importers.import_features import import_features
from pipeline.store.shards.feature_set import FeatureSet
from tests.project import Call, contents
from tests.stages.conftest import LITE, MEAN
from tests.stages.test_run_command import made

CCA, DATASET = "wang2016-cca", ("--dataset", "data/scenes")


def random(rows: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, *shape), np.float32)


@pytest.fixture
def image_ids(project: Path) -> list[str]:
    return [entry.id for entry in read_manifest("data/scenes").entries]


@pytest.fixture
def caption_ids(project: Path) -> list[str]:
    return [one for entry in read_manifest("data/scenes").entries for one in entry.caption_ids]


def write(folder: str, ids: list[str], *shape: int, seed: int = 0, dataset: str = "scenes") -> None:
    shutil.rmtree(folder, ignore_errors=True)
    rows = random(len(ids), *shape or (7,), seed=seed)
    write_features(folder, ids, rows, recipe={"name": "mine"}, dataset=dataset)


def test_both_sides_are_given(image_ids: list[str], caption_ids: list[str], pipeline: Call) -> None:
    given = ("--image-features", "made/clip", "--caption-features", "texts/clip")
    write("made/clip", image_ids)
    write("texts/clip", [*reversed(caption_ids), "another#0"])
    command = ("run", CCA, *DATASET, *given)
    name = f"{CCA}@clip@@clip"
    steps = ["link", "link", "train", "embed", "evaluate"]
    assert made(pipeline(*command, "--dry-run").stderr) == steps
    assert not Path("data/features").exists()
    assert made(pipeline(*command).stderr) == steps
    assert Path(f"data/evaluations/scenes/{name}").is_dir()
    # Linked to their places, the sets need no options any more.
    assert made(pipeline("run", name, *DATASET).stderr) == []
    write("texts/clip", caption_ids, seed=1)
    assert made(pipeline("run", name, *DATASET).stderr) == steps[2:]
    alone = pipeline("run", "kiros2014-linear@@clip", *DATASET, "--dry-run")
    assert made(alone.stderr) == ["extract", "train", "embed", "evaluate"]
    assert pipeline("train", "--experiment", name, *DATASET).status == 0
    Path("texts/clip").rename("moved")
    assert "texts/clip, where no feature set was found" in pipeline("run", name, *DATASET).stderr
    assert made(pipeline(*command[:-1], "moved", "--dry-run").stderr)[0] == "link"


def test_images_alone_are_given_and_searched(image_ids: list[str], pipeline: Call) -> None:
    write("data/features/scenes/bu", image_ids)  # in place, without an option
    ended = pipeline("run", "qian2018-baseline@bu", *DATASET)
    assert made(ended.stderr) == ["text", "train", "embed", "evaluate"]
    search = ("search", "--experiment", "qian2018-baseline@bu", *DATASET)
    found = pipeline(*search, "a red square", "--top", 60)
    assert len(found.stdout.splitlines()) == 60
    by_file = pipeline(*search, "--image", "data/scenes/images/scene-00000.png")
    assert "features that no recipe of `pipeline list recipes` makes" in by_file.stderr


def test_captions_without_their_encoder_are_searched_by_images(
    image_ids: list[str], caption_ids: list[str], pipeline: Call
) -> None:
    write("made/clip", image_ids)
    write("texts/clip", caption_ids)
    given = ("--image-features", "made/clip", "--caption-features", "texts/clip")
    assert pipeline("run", CCA, *DATASET, *given).status == 0
    search = ("search", "--experiment", f"{CCA}@clip@@clip", *DATASET)
    assert len(pipeline(*search, "--image", image_ids[0]).stdout.splitlines()) == 5
    refused = pipeline(*search, "a red square")
    assert "of other programs have none: search with the id of an image" in refused.stderr


def test_captions_with_their_encoder_are_searched_by_sentences(
    project: Path, pipeline: Call
) -> None:
    assert pipeline("text", "--encoder", "mean", *DATASET, "--out", "texts/glove").status == 0
    ran = pipeline("run", "qian2018-baseline", *DATASET, "--caption-features", "texts/glove")
    assert made(ran.stderr) == ["extract", "link", "train", "embed", "evaluate"]
    found = pipeline("search", "a red square", "--experiment", "qian2018-baseline@@glove", *DATASET)
    assert len(found.stdout.splitlines()) == 5


def test_zero_shot_of_given_pairs_is_their_cosine(
    image_ids: list[str], caption_ids: list[str], pipeline: Call
) -> None:
    write("made/clip", image_ids, 5)
    write("texts/clip", caption_ids, 5, seed=1)
    given = ("--image-features", "made/clip", "--caption-features", "texts/clip")
    ran = pipeline("run", "zero-shot", *DATASET, *given)
    assert "neither side records its weights" in ran.stderr
    entries = read_manifest("data/scenes").select("test")
    images, captions = FeatureSet("made/clip"), FeatureSet("texts/clip")
    expected = recall_table(
        Embeddings(
            entries.ids,
            images.read(entries.ids),
            entries.captions.ids,
            [one.partition("#")[0] for one in entries.captions.ids],
            captions.read(entries.captions.ids),
            "cosine",
            {},
        )
    )
    table = read_recall(Path("data/evaluations/scenes/zero-shot@clip@@clip/recall.json"))
    assert table["rsum"] == pytest.approx(expected["rsum"])


def write_tsv(rows: np.ndarray, ids: list[str]) -> dict[str, object]:
    lines = [
        "\t".join([one, "640", "480", "36", "", base64.b64encode(row.tobytes()).decode()])
        for one, row in zip(ids, rows, strict=True)
    ]
    Path("regions.tsv").write_text("\n".join(lines) + "\n")
    return {"source": "regions.tsv", "layout": "bottom-up"}


def write_npz(rows: np.ndarray, ids: list[str]) -> dict[str, object]:
    Path("npz").mkdir()
    for one, row in zip(ids, rows, strict=True):
        np.savez(f"npz/{one}.npz", features=row)
    return {"source": "npz", "layout": "bottom-up"}


def write_npy(rows: np.ndarray, ids: list[str]) -> dict[str, object]:
    np.save("regions.npy", rows)
    return {"source": "regions.npy", "layout": "npy", "ids": ids}


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_tsv, "scan-t2i-avg"),
        (write_npz, "yan2019-transformer-basic"),
        (write_npy, "scan-i2t-avg"),
    ],
)
def test_regions_become_a_table(
    write: Callable[..., dict[str, object]], name: str, image_ids: list[str], pipeline: Call
) -> None:
    rows = random(len(image_ids), 36, 8)
    import_features(out="made/bu", dataset="scenes", **write(rows, image_ids))  # type: ignore[arg-type]
    np.testing.assert_array_equal(FeatureSet("made/bu").read(image_ids), rows)
    tiny = ("--size", "tiny", "--max-epochs", 1)
    ran = pipeline("run", name, *DATASET, "--image-features", "made/bu", *tiny)
    assert ran.status == 0, ran.stderr
    assert f"| {name}@bu | " in ran.stdout


IMAGES, CAPTIONS = "--image-features", "--caption-features"


@pytest.mark.parametrize(
    ("experiment", "options", "reason"),
    [
        (CCA, {IMAGES: ("made/x", 1, ())}, "has no rows for 1 of 60 ids, first ['scene-00000']"),
        (
            CCA,
            {CAPTIONS: ("made/x", 1, ())},
            "has no rows for 1 of 300 ids, first ['scene-00000#0'",
        ),
        (CCA, {IMAGES: ("made/x", 0, (3, 7))}, f"{CCA}@x: head 'cca': one vector per row"),
        ("scan-t2i-avg", {IMAGES: ("made/x", 0, ())}, "needs a grid or a list of regions"),
        ("vsepp", {CAPTIONS: ("made/x", 0, ())}, "reads captions word by word"),
        ("qian2018-baseline", {CAPTIONS: ("made/x", 0, (3, 7))}, "one vector per row"),
        ("dong2018-w2vv-gru", {CAPTIONS: ("made/x", 0, ())}, "has no token ids"),
        (f"{CCA}@{LITE}", {IMAGES: ("made/x", 0, ())}, f"{CCA}@{LITE} names its features"),
        (CCA, {IMAGES: ("made/a+b", 0, ())}, "mean several sets"),
        (CCA, {IMAGES: ("made/a-seed1", 0, ())}, "-seed1 at its end a training"),
        (CCA, {IMAGES: (f"made/{LITE}", 0, ())}, "features that `pipeline run` computes"),
        (CCA, {CAPTIONS: ("made/bow", 0, ())}, "features that `pipeline run` computes"),
        ("kiros2014-sc-nlm", {CAPTIONS: ("made/x", 0, ())}, "reads no other caption features"),
        ("vsepp-finetuned", {IMAGES: ("made/x", 0, ())}, "fine-tunes the network"),
        ("zero-shot", {IMAGES: ("made/x", 0, (5,)), CAPTIONS: ("made/y", 0, (6,))}, "5 dimensions"),
    ],
)
def test_what_cannot_be_used_is_known_before_work_starts(
    experiment: str,
    options: dict[str, tuple[str, int, tuple[int, ...]]],
    reason: str,
    image_ids: list[str],
    caption_ids: list[str],
    pipeline: Call,
) -> None:
    words: list[str] = []
    for option, (folder, first, shape) in options.items():
        ids = image_ids if option == IMAGES else caption_ids
        write(folder, ids[first:], *shape)
        words += [option, folder]
    refused = pipeline("run", experiment, *DATASET, *words)
    assert refused.status in (1, 2)
    assert reason in " ".join(refused.stderr.split())
    assert {path.name for path in Path("data").iterdir()} == {"scenes"}


@pytest.mark.parametrize(
    ("command", "name", "reason"),
    [
        (("run",), f"{CCA}@photos-pol", "the nearest set in data/features/scenes is photos-pool"),
        (("run",), f"xu2015-soft-attention@{LITE[:-4]}grid+{LITE}", "grids with the same cells"),
        (("train", "--experiment"), "xu2015-soft-attention", "language models and ensembles: `pi"),
    ],
)
def test_a_name_that_cannot_be_used_is_known_before_work_starts(
    command: tuple[str, ...], name: str, reason: str, image_ids: list[str], pipeline: Call
) -> None:
    write("data/features/scenes/photos-pool", image_ids)
    refused = pipeline(*command, name, *DATASET)
    assert (refused.status in (1, 2), reason in refused.stderr) == (True, True), refused.stderr
    assert {path.name for path in Path("data").iterdir()} == {"features", "scenes"}


def test_concatenated_features_fit_by_their_whole_shape(
    image_ids: list[str], caption_ids: list[str], pipeline: Call
) -> None:
    write("data/features/scenes/mine", image_ids)
    write("data/text/scenes/words", caption_ids)
    for parts in (f"{LITE}+mine", f"mine+{LITE}"):
        planned = pipeline("run", f"{CCA}@{parts}@@words", *DATASET, "--dry-run")
        assert (planned.status, f"train {CCA}@{parts}" in planned.stderr) == (0, True)
    grids = f"{LITE[:-4]}grid+resnet50-caffe-grid"
    refused = pipeline("run", f"scan-t2i-avg@{grids}@@words", *DATASET)
    assert "reads captions word by word" in refused.stderr  # not: needs a grid of images


def test_of_several_experiments_those_that_fit_are_made(
    image_ids: list[str], pipeline: Call
) -> None:
    write("made/x", image_ids)
    ran = pipeline("run", "scan-t2i-avg", CCA, *DATASET, "--image-features", "made/x")
    assert ran.status == 1
    assert "scan-t2i-avg@x is left out" in ran.stderr
    assert "| scan-t2i-avg@x | inputs |" in ran.stdout + ran.stderr
    assert Path(f"data/evaluations/scenes/{CCA}@x").is_dir()
    assert not [*Path("data/text/scenes").glob("token-ids*")]  # of the other one alone


def test_features_of_another_dataset_are_refused(image_ids: list[str], pipeline: Call) -> None:
    write("made/x", image_ids, dataset="flickr30k")
    refused = pipeline("run", CCA, *DATASET, "--image-features", "made/x")
    assert "features of the dataset 'flickr30k', where an id may be another image" in refused.stderr
    shutil.copytree("data/scenes", "other")
    metadata = Path("other/dataset.json")
    metadata.write_text(metadata.read_text().replace('"name": "scenes"', '"name": "other"'))
    for copied, status in (("same", 0), ("changed", 2)):
        if status:
            shutil.copy(f"other/images/{image_ids[1]}.png", f"other/images/{image_ids[0]}.png")
        extracted = pipeline("extract", "--recipe", LITE, "--dataset", "other", "--out", copied)
        assert extracted.status == 0
        refused = pipeline("run", CCA, *DATASET, "--image-features", copied, "--dry-run")
        assert refused.status == status, refused.stderr
    assert f"other files for 1 of {len(image_ids)} images" in refused.stderr
    write("made/x", image_ids)
    write("data/features/scenes/x", image_ids, 9)
    refused = pipeline("run", CCA, *DATASET, "--image-features", "made/x")
    assert "other features of the same dataset" in refused.stderr


def test_a_link_to_itself_is_named(project: Path, pipeline: Call) -> None:
    loop = Path("data/features/scenes/loop")
    loop.parent.mkdir(parents=True)
    loop.symlink_to("loop")
    for words in ((f"{CCA}@loop",), (CCA, "--image-features", str(loop))):
        refused = pipeline("run", *words, *DATASET)
        assert (refused.status, f"{loop} is a link to" in refused.stderr) == (1, True)


def test_given_sets_are_not_overwritten(caption_ids: list[str], pipeline: Call) -> None:
    write(f"texts/{MEAN}", caption_ids)
    linked = pipeline("run", "kiros2014-linear", *DATASET, "--caption-features", f"texts/{MEAN}")
    assert f"kiros2014-linear@@{MEAN}" in linked.stdout
    before = contents(Path(f"texts/{MEAN}"))
    refused = pipeline("run", "qian2018-baseline", *DATASET)
    assert "has the name of features that are to be computed" in refused.stderr
    assert contents(Path(f"texts/{MEAN}")) == before


def test_language_models_on_given_images(image_ids: list[str], pipeline: Call) -> None:
    write("made/x", image_ids)
    for name in ("kiros2014-sc-nlm", "kiros2014-mlbl", "ours"):
        planned = pipeline("run", name, *DATASET, "--image-features", "made/x", "--dry-run")
        assert f" {name}@x" in planned.stderr
        assert "extract" not in made(planned.stderr)
