"""The commands from pictures to the recall table, and what they say of a user's mistakes."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from tests.images.odd_files import photo, write_all
from tests.project import Call

LITE = "efficientnet-lite0-pool"


def extract(pipeline: Call, out: object, *options: object, dataset: str = "data/scenes") -> int:
    ended = pipeline("extract", "--recipe", LITE, "--dataset", dataset, "--out", out, *options)
    return ended.status


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("in_full")
def test_from_scenes_to_the_joint_table(project: Path, pipeline: Call) -> None:
    assert extract(pipeline, f"data/features/scenes/{LITE}") == 0
    text = "data/text/scenes/mean-glove-6b-50d"
    ended = pipeline("text", "--encoder", "mean", "--dataset", "data/scenes", "--out", text)
    assert ended.status == 0
    assert "0.00 %" in ended.stderr
    names = ["qian2018-baseline", "wang2016-nonlinear-bidirectional-structure"]
    for name in names:
        assert pipeline("train", "--experiment", name).status == 0
        assert pipeline("embed", "--experiment", name).status == 0
        ended = pipeline(
            "evaluate",
            f"data/embeddings/scenes/{name}.h5",
            "--out",
            f"data/evaluations/scenes/{name}",
        )
        assert ended.status == 0
        assert name in ended.stdout
        recall = json.loads(Path(f"data/evaluations/scenes/{name}/recall.json").read_text())
        assert recall["num_images"] == 10
        assert recall["num_captions"] == 50
    ended = pipeline("report")
    assert ended.status == 0
    assert ended.stdout == Path("data/report/scenes/recall.md").read_text()
    assert [name in ended.stdout for name in names] == [True, True]
    assert ended.stdout.index(names[0]) < ended.stdout.index(names[1])

    before = {p: p.read_bytes() for p in Path("data").rglob("*") if p.is_file()}
    for name in names:
        pipeline("train", "--experiment", name)
        pipeline("embed", "--experiment", name)
        embeddings = f"data/embeddings/scenes/{name}.h5"
        pipeline("evaluate", embeddings, "--out", f"data/evaluations/scenes/{name}")
    pipeline("report")
    assert {p: p.read_bytes() for p in before} == before, "the same commands, the same bytes"

    assert extract(pipeline, "data/features/half", "--storage", "float16") == 0
    ended = pipeline("embed", "--experiment", names[0], "--image-features", "data/features/half")
    assert ended.status == 1
    assert "use the features that it was fitted on" in ended.stderr
    ended = pipeline("embed", "--experiment", names[0], "--head", f"data/heads/scenes/{names[1]}")
    assert ended.status == 1
    assert f"not of '{names[0]}'" in ended.stderr


@pytest.mark.usefixtures("in_full")
def test_features_do_not_depend_on_batches_or_threads(project: Path, pipeline: Call) -> None:
    rows = []
    for batch, readers, threads in ((5, 2, 1), (1, 1, 3), (3, 1, 1), (3, 2, 2)):
        out = project / f"out-{batch}-{readers}"
        options = ("--batch-size", batch, "--readers", readers, "--threads", threads)
        assert extract(pipeline, out, *options, "--limit", 11) == 0
        features = FeatureSet(out)
        rows.append(features.read(features.ids))
    for other in rows[1:]:
        np.testing.assert_allclose(other, rows[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows[2], rows[3])


def test_a_finished_output_is_brought_up_to_date(project: Path, pipeline: Call) -> None:
    images = Path("data/scenes/images")
    out, options = project / "out", ("--rows-per-shard", 25, "--batch-size", 5)
    (images / "scene-00030.png").write_bytes(b"damaged")
    assert extract(pipeline, out, *options) == 3
    first = {path.name: (path.stat().st_ino, path.read_bytes()) for path in out.iterdir()}

    photo(1, 224, 224).save(images / "scene-00030.png")
    photo(2, 224, 224).save(images / "scene-00033.png")
    ended = pipeline(
        "extract", "--recipe", LITE, "--dataset", "data/scenes", "--out", out, *options
    )
    assert ended.status == 0, ended.stderr
    assert "images changed or new: 2" in ended.stderr
    for shard in (0, 2):
        name = f"shard-{shard:05d}-of-00003.h5"
        assert first[name] == ((out / name).stat().st_ino, (out / name).read_bytes()), "untouched"
    assert extract(pipeline, project / "fresh", *options) == 0
    fresh, mended = FeatureSet(project / "fresh"), FeatureSet(out)
    np.testing.assert_allclose(
        mended.read(mended.ids), fresh.read(mended.ids), rtol=1e-4, atol=1e-5
    )
    assert mended.source_crc32.tolist() == fresh.source_crc32.tolist()

    (images / "scene-00012.png").write_bytes(b"damaged")
    for _ in range(2):
        assert extract(pipeline, out, *options, "--retry-failed") == 3
        assert FeatureSet(out).failures()[0][0] == "scene-00012"


def test_pictures_that_have_gone_cost_no_finished_row(project: Path, pipeline: Call) -> None:
    out = project / "out"
    assert extract(pipeline, out) == 0
    before = files(out)
    shutil.move("data/scenes/images", project / "unmounted")
    Path("data/scenes/images").mkdir()
    ended = pipeline("extract", "--recipe", LITE, "--dataset", "data/scenes", "--out", out)
    assert ended.status == 0
    assert "images missing now: 60" in ended.stderr
    assert files(out) == before


@pytest.mark.usefixtures("in_full")
def test_a_row_does_not_depend_on_its_neighbours(project: Path, pipeline: Call) -> None:
    assert extract(pipeline, project / "whole", "--limit", 16) == 0
    for number in range(1, 8):
        Path(f"data/scenes/images/scene-{number:05d}.png").write_bytes(b"damaged")
    assert extract(pipeline, project / "damaged", "--limit", 16) == 3
    whole, damaged = FeatureSet(project / "whole"), FeatureSet(project / "damaged")
    good = [row_id for row_id, code in zip(damaged.ids, damaged.status, strict=True) if code == OK]
    np.testing.assert_array_equal(damaged.read(good), whole.read(good))


def test_new_images_go_into_new_shards(project: Path, pipeline: Call) -> None:
    out, options = project / "out", ("--rows-per-shard", 16)
    assert extract(pipeline, out, *options, "--limit", 20) == 0
    first = {path.name: path.read_bytes() for path in out.glob("*.h5")}
    arguments = ("extract", "--recipe", LITE, "--dataset", "data/scenes", "--out", out, *options)
    ended = pipeline(*arguments)
    assert ended.status == 1
    assert "add them" in ended.stderr
    assert pipeline(*arguments, "--add").status == 0
    features = FeatureSet(out)
    assert features.ids == [f"scene-{number:05d}" for number in range(60)]
    assert {name: (out / name).read_bytes() for name in first} == first
    before = files(out)
    assert pipeline(*arguments).status == 0
    assert files(out) == before


def test_captions_with_another_text_are_noticed(project: Path, pipeline: Call) -> None:
    assert extract(pipeline, f"data/features/scenes/{LITE}") == 0
    text = "data/text/scenes/mean-glove-6b-50d"
    arguments = ("text", "--encoder", "mean", "--dataset", "data/scenes", "--out", text)
    assert pipeline(*arguments).status == 0
    manifest = Path("data/scenes/manifest.jsonl")
    lines = manifest.read_text().splitlines()
    entry = json.loads(lines[0])
    entry["captions"][1] = "a dog"
    manifest.write_text("\n".join([json.dumps(entry), *lines[1:]]) + "\n")
    described = Path("data/scenes/dataset.json")
    metadata = json.loads(described.read_text())
    metadata["manifest_sha256"] = hashlib.sha256(manifest.read_bytes()).hexdigest()
    described.write_text(json.dumps(metadata))
    ended = pipeline("train", "--experiment", "qian2018-baseline")
    assert ended.status == 1
    assert "scene-00000#1" in ended.stderr
    ended = pipeline(*arguments)
    assert ended.status == 0, ended.stderr
    assert "captions changed or new: 1" in ended.stderr
    assert pipeline("train", "--experiment", "qian2018-baseline").status == 0


def test_odd_files_keep_their_rows(tmp_path: Path, pipeline: Call) -> None:
    expected = write_all(tmp_path / "images")
    photo(5).save(tmp_path / "images" / "missing.jpg")
    (tmp_path / "images" / "folder.jpg").rmdir()
    (tmp_path / "images" / "folder.jpg").write_bytes(b"")
    lines = [json.dumps({"path": name, "caption": f"a {name}"}) for name in expected]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    ended = pipeline(
        "prepare", "folder", "--root", tmp_path / "images",
        "--captions", tmp_path / "captions.jsonl", "--out", tmp_path / "mine",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr
    (tmp_path / "images" / "missing.jpg").unlink()

    arguments = ("extract", "--backbone", "efficientnet-lite0", "--dataset", tmp_path / "mine")
    ended = pipeline(*arguments, "--out", tmp_path / "out")
    assert ended.status == 3
    failed = sum(status != OK for status in expected.values())
    assert f"{failed} of {len(expected)} rows failed" in ended.stderr.splitlines()[-1]
    assert "truncated.jpg: unreadable" in ended.stderr
    features = FeatureSet(tmp_path / "out")
    assert features.ids == list(expected)
    assert features.status.tolist() == list(expected.values())
    assert all(reason for _, _, reason in features.failures())
    assert pipeline(*arguments, "--out", tmp_path / "out").status == 3, "and again"

    lines = [line for line in lines if expected[json.loads(line)["path"]] == OK]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    pipeline(
        "prepare", "folder", "--root", tmp_path / "images",
        "--captions", tmp_path / "captions.jsonl", "--out", tmp_path / "good",
    )  # fmt: skip
    assert extract(pipeline, tmp_path / "alone", dataset=str(tmp_path / "good")) == 0
    good = FeatureSet(tmp_path / "alone")
    np.testing.assert_allclose(features.read(good.ids), good.read(good.ids), rtol=1e-4, atol=1e-5)


def test_images_without_features_are_refused_or_left_out_and_counted(
    project: Path, pipeline: Call
) -> None:
    for number in (0, 1, 2):
        Path(f"data/scenes/images/scene-{number:05d}.png").write_bytes(b"damaged")
    assert extract(pipeline, f"data/features/scenes/{LITE}") == 3
    text = "data/text/scenes/mean-glove-6b-50d"
    pipeline("text", "--encoder", "mean", "--dataset", "data/scenes", "--out", text)
    for command in ("train", "embed"):
        ended = pipeline(command, "--experiment", "qian2018-baseline")
        assert ended.status == 1, command
        if command == "train":
            assert "leave the failed rows out" in ended.stderr
        ended = pipeline(command, "--experiment", "qian2018-baseline", "--leave-out-failed")
        assert ended.status == 0, ended.stderr
        assert "without features" in ended.stderr
    with h5py.File("data/embeddings/scenes/qian2018-baseline.h5") as file:
        assert len(file["images/id"]) == 9


@pytest.mark.slow
@pytest.mark.usefixtures("in_full")
def test_killed_and_interrupted_runs_end_in_the_same_bytes(project: Path, pipeline: Call) -> None:
    options = ("--batch-size", 2, "--rows-per-shard", 8)
    assert extract(pipeline, "whole", *options) == 0
    # Slowed down, so that the signal always comes long before the end.
    program = (
        "import time; from pipeline.images import batches as rows; from stages.cli import main; "
        "once = rows._compute; "
        "rows._compute = lambda *given: (time.sleep(0.2), once(*given))[1]; main()"
    )
    command = [sys.executable, "-c", program, "extract", "--recipe", LITE]
    command += ["--dataset", "data/scenes", "--out", "killed", *map(str, options)]
    # As many threads as this process, or the last bits would differ.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for number, sign in ((1, signal.SIGKILL), (3, signal.SIGINT)):
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        deadline = time.monotonic() + 60
        while len(list(Path(".work").glob("killed-*/*/shard-*.h5"))) < number:
            assert running.poll() is None, "the run ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.send_signal(sign)
        said = running.communicate()[1]
        assert not Path("killed").exists(), said
        if sign == signal.SIGINT:
            assert running.returncode == 130
            assert "the same command resumes from there" in said
            assert "Traceback" not in said
        else:
            assert running.returncode == -signal.SIGKILL
    assert extract(pipeline, "killed", *options) == 0
    assert files(Path("killed")) == files(Path("whole"))
    assert {p.suffix for p in Path(".work").iterdir()} <= {".lock", ".finished"}


def test_a_moved_dataset_and_an_altered_one_are_told_apart(project: Path, pipeline: Call) -> None:
    shutil.move("data/scenes", "elsewhere")
    assert extract(pipeline, "out", "--limit", 2, dataset="elsewhere") == 0
    with h5py.File("out/shard-00000-of-00001.h5") as file:
        assert file["features"].shape == (2, 1280)
    with Path("elsewhere/manifest.jsonl").open("a") as file:
        file.write("\n")
    ended = pipeline("extract", "--recipe", LITE, "--dataset", "elsewhere", "--out", "out")
    assert ended.status == 1
    assert "prepare it again" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("extract --backbone resnet --dataset data/scenes --out x", 2, "did you mean resnet152"),
        ("extract --dataset data/scenes --out x", 2, "--backbone NAME or --recipe NAME"),
        ("extract --backbone vgg19 --dataset data/scenes --out x --weights no.pth", 1, "no.pth"),
        ("extract --backbone vgg19 --dataset nowhere --out x", 1, "pipeline prepare"),
        ("extract --recipe vgg19-fc7 --dataset data/scenes --out x --split dev", 1, "train (40"),
        ("extract --recipe vgg19-fc7 --dataset data/scenes --out x --device cuda:9", 1, "cuda:9"),
        ("extract --recipe vgg19-fc7 --dataset data/scenes --out x --limit 0", 2, "--limit"),
        ("extract --recipe vgg19-fc7 --dataset data/scenes --out x --device meta", 1, "meta"),
        ("extract --backbone vgg19 --dataset data/scenes --out x --precision tf32", 1, "CUDA"),
        ("text --encoder mean --vectors w.bin --dataset data/scenes --out x", 1, "w.bin"),
        ("train --experiment none", 2, "pipeline list experiments"),
        ("train --experiment qian2018-baseline", 1, "pipeline extract"),
        ("embed --experiment qian2018-baseline", 1, "pipeline run qian2018-baseline"),
        ("evaluate params.yaml --out x", 1, "params.yaml"),
        ("report --dataset nowhere", 1, "pipeline run NAME --dataset nowhere"),
        ("list recipes resnet", 2, "did you mean resnet152"),
    ],
)
def test_mistakes_get_one_paragraph_and_nothing_half_made(
    project: Path, pipeline: Call, arguments: str, status: int, message: str
) -> None:
    before = sorted(Path().rglob("*"))
    ended = pipeline(*arguments.split())
    assert ended.status == status
    paragraph = [line for line in ended.stderr.splitlines() if "error" in line.lower()]
    assert len(paragraph) == 1, ended.stderr
    assert message in paragraph[0]
    assert ended.stdout == ""
    assert [p for p in sorted(Path().rglob("*")) if p not in before and ".work" not in str(p)] == []


def test_wrong_params_are_named_by_their_place(project: Path, pipeline: Call) -> None:
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("\nseed: 0\n", "\nsead: 0\n", 1))
    ended = pipeline("train", "--experiment", "qian2018-baseline")
    assert ended.status == 1
    assert "sead" in ended.stderr
    Path("params.yaml").write_text("a: [")
    assert "is not YAML" in pipeline("train", "--experiment", "x").stderr
    for date in ("2026-13-01", "!!timestamp x"):
        Path("params.yaml").write_text(f"seed: {date}\n")
        assert "is not YAML" in pipeline("train", "--experiment", "x").stderr
    Path("params.yaml").write_text("a: " + "[" * 3000 + "]" * 3000)
    assert "is not YAML" in pipeline("train", "--experiment", "x").stderr
    Path("params.yaml").unlink()
    ended = pipeline("train", "--experiment", "x")
    assert "no experiment 'x'" in ended.stderr
    ended = pipeline("train", "--experiment", "wang2016-cca")
    assert ended.status == 2
    assert "params.yaml not found" in ended.stderr
    Path("params.yaml").write_text("dataset: scenes\nscenes: {images: 6, seed: 0}\n")
    assert "unknown field `scenes`" in pipeline("train", "--experiment", "x").stderr


def test_extract_takes_its_defaults_from_params_of_this_project_only(
    project: Path, pipeline: Call
) -> None:
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("weights: imagenet", "weights: random:3"))
    assert extract(pipeline, "seeded", "--limit", 1) == 0
    assert FeatureSet(Path("seeded")).index.header.weights == "random:3"
    Path("params.yaml").write_text("learning_rate: 1\n")
    assert extract(pipeline, "packaged", "--limit", 1) == 0
    assert FeatureSet(Path("packaged")).index.header.weights.startswith("package:")


@pytest.mark.parametrize(
    "command",
    ["", "prepare", "prepare scenes", "prepare flickr8k", "prepare coco", "prepare karpathy",
     "prepare folder", "extract", "text", "train", "embed", "evaluate", "report", "list"],
)  # fmt: skip
def test_help_has_an_example(pipeline: Call, command: str) -> None:
    ended = pipeline(*command.split(), "--help")
    assert ended.status == 0
    assert re.search("Examples?:", ended.stdout)


def test_recipes_are_listed_and_printed(pipeline: Call) -> None:
    assert "7 x 7 x 2048" in pipeline("list", "recipes").stdout
    printed = json.loads(pipeline("list", "recipes", "vgg19").stdout)
    assert (printed["name"], printed["combine_crops"]) == ("vgg19-fc7-10crop", "mean")
