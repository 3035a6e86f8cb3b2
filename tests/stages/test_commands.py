"""The commands from images to features: what they print, and what a user may rely on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OK
from tests.images.odd_files import photo, write_all
from tests.project import Call, contents
from tests.stages.conftest import LITE

EXTRACT = ("extract", "--recipe", LITE, "--dataset", "data/scenes")


@pytest.mark.usefixtures("in_full")
def test_features_do_not_depend_on_batches_or_threads(project: Path, pipeline: Call) -> None:
    """Options that no output records change no byte: `threads` and `readers`."""
    rows = []
    for batch, readers, threads in ((5, 2, 1), (1, 1, 3), (3, 1, 1), (3, 2, 2)):
        out = project / f"out-{batch}-{readers}"
        options = ("--batch-size", batch, "--readers", readers, "--threads", threads)
        assert pipeline(*EXTRACT, "--out", out, *options, "--limit", 7).status == 0
        features = FeatureSet(out)
        rows.append(features.read(features.ids))
    for other in rows[1:]:
        np.testing.assert_allclose(other, rows[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows[2], rows[3])


@pytest.mark.usefixtures("in_full")
def test_a_row_does_not_depend_on_its_neighbours(project: Path, pipeline: Call) -> None:
    few = (*EXTRACT, "--limit", 11, "--out")
    assert pipeline(*few, "whole").status == 0
    for number in range(1, 8):
        Path(f"data/scenes/images/scene-{number:05d}.png").write_bytes(b"damaged")
    assert pipeline(*few, "damaged").status == 3
    whole, damaged = FeatureSet(Path("whole")), FeatureSet(Path("damaged"))
    good = [row_id for row_id, code in zip(damaged.ids, damaged.status, strict=True) if code == OK]
    np.testing.assert_array_equal(damaged.read(good), whole.read(good))


def test_odd_files_keep_their_rows_and_end_in_status_3(tmp_path: Path, pipeline: Call) -> None:
    expected = write_all(tmp_path / "images")
    photo(5).save(tmp_path / "images" / "missing.jpg")
    (tmp_path / "images" / "folder.jpg").rmdir()
    (tmp_path / "images" / "folder.jpg").write_bytes(b"")
    lines = [json.dumps({"path": name, "caption": f"a {name}"}) for name in expected]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    sources = ("--root", tmp_path / "images", "--captions", tmp_path / "captions.jsonl")
    assert pipeline("prepare", "folder", *sources, "--out", tmp_path / "mine").status == 0
    (tmp_path / "images" / "missing.jpg").unlink()
    extract = ("extract", "--backbone", "efficientnet-lite0", "--dataset", tmp_path / "mine")
    failed = sum(status != OK for status in expected.values())
    for _ in range(2):
        ended = pipeline(*extract, "--out", tmp_path / "out", "--json")
        assert (ended.status, json.loads(ended.stdout)["failed_rows"]) == (3, failed)
        assert f"{failed} of {len(expected)} rows failed" in ended.stderr.splitlines()[-1]
        assert "truncated.jpg: unreadable" in ended.stderr
    features = FeatureSet(tmp_path / "out")
    assert features.ids == list(expected)
    assert features.status.tolist() == list(expected.values())
    assert all(reason for _, _, reason in features.failures())


def test_results_as_json_are_all_of_stdout(project: Path, pipeline: Call) -> None:
    out = ("--dataset", "data/scenes", "--out")
    ended = pipeline("extract", "--recipe", LITE, *out, "features", "--limit", 4, "--json")
    made = json.loads(ended.stdout)
    assert (made["rows"], made["failed_rows"], made["row_shape"]) == (4, 0, [1280])
    assert "4 rows (1280,) in 1 shard in features" in ended.stderr
    text = json.loads(pipeline("text", "--encoder", "mean", *out, "text", "--json").stdout)
    assert (text["rows"], text["recipe"], text["dataset"]) == (300, "mean-glove-6b-50d", "scenes")
    proposed = pipeline("propose", "--method", "grid", *out, "boxes", "--limit", 1, "--json")
    assert json.loads(proposed.stdout)["rows"] == 1
    info = json.loads(pipeline("shards", "info", "features", "--json").stdout)
    assert (info["rows"], info["recipe_hash"]) == (4, made["recipe_hash"])
    verified = pipeline("shards", "verify", "features", "--json")
    assert (verified.status, json.loads(verified.stdout)["faults"]) == (0, [])
    shard = next(Path("features").glob("*.h5"))
    shard.write_bytes(shard.read_bytes()[:-9])
    verified = pipeline("shards", "verify", "features", "--json")
    assert verified.status == 1
    assert json.loads(verified.stdout)["faults"][0]["file"] == shard.name


@pytest.mark.slow
@pytest.mark.usefixtures("in_full")
def test_killed_and_interrupted_runs_end_in_the_same_bytes(project: Path, pipeline: Call) -> None:
    options = ("--batch-size", 2, "--rows-per-shard", 8)
    assert pipeline(*EXTRACT, "--out", "whole", *options).status == 0
    # Slowed down, so that the signal always comes long before the end.
    program = (
        "import time; from pipeline.images import batches as rows; from stages.cli import main; "
        "once = rows._compute; "
        "rows._compute = lambda *given: (time.sleep(0.2), once(*given))[1]; main()"
    )
    command = [sys.executable, "-c", program, *EXTRACT, "--out", "killed", *map(str, options)]
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
        text = running.communicate()[1]
        assert not Path("killed").exists(), text
        if sign == signal.SIGINT:
            assert running.returncode == 130
            assert "the same command resumes from there" in text
            assert "Traceback" not in text
        else:
            assert running.returncode == -signal.SIGKILL
    assert pipeline(*EXTRACT, "--out", "killed", *options).status == 0
    assert contents(Path("killed")) == contents(Path("whole"))
    assert {p.suffix for p in Path(".work").iterdir()} <= {"", ".lock", ".finished"}


def test_extract_takes_its_defaults_from_params_of_this_project_only(
    project: Path, pipeline: Call
) -> None:
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("weights: imagenet", "weights: random:3"))
    assert pipeline(*EXTRACT, "--out", "seeded", "--limit", 1).status == 0
    assert FeatureSet(Path("seeded")).index.header.weights == "random:3"
    Path("params.yaml").write_text("learning_rate: 1\n")
    assert pipeline(*EXTRACT, "--out", "packaged", "--limit", 1).status == 0
    assert FeatureSet(Path("packaged")).index.header.weights.startswith("package:")
