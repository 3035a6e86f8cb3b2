"""`pipeline text`: the job's bytes, nothing learnt from other splits, few imports."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from pipeline.text.encode import encode
from tests.project import Call

# 50-d vectors and few words, so that codebooks are fitted in a moment.
FISHER = ("--components", 3, "--sample", 500)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


def test_the_command_writes_the_bytes_of_the_job(project: Path, pipeline: Call) -> None:
    command = ("text", "--encoder", "fv-hglmm", *FISHER, "--pca", 7, "--dataset", "data/scenes")
    ended = pipeline(*command, "--out", "one")
    assert ended.status == 0, ended.stderr
    assert "MB of memory" in ended.stderr
    options = {"components": 3, "sample": 500, "pca": 7}
    encode("data/scenes", "two", encoder="fv-hglmm", **options)  # type: ignore[arg-type]
    assert files(Path("two")) == files(Path("one"))
    assert files(Path("two.encoder")) == files(Path("one.encoder"))
    ended = pipeline(*command, "--out", "one")
    assert (ended.status, "300 rows are done" in ended.stderr) == (0, True)
    assert "principal components" not in ended.stderr


def test_captions_of_other_splits_do_not_change_what_is_fitted(
    project: Path, pipeline: Call
) -> None:
    manifest = Path("data/scenes/manifest.jsonl")
    command = (
        "text", "--encoder", "bow+fv-gmm", *FISHER, "--codebook-words", "training",
        "--vocabulary", "min-1", "--dataset", "data/scenes",
    )  # fmt: skip
    assert pipeline(*command, "--out", "before").status == 0
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if line["split"] != "train":
            line["captions"] = [f"{c} zebra zebra zebra zebra zebra" for c in line["captions"]]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = pipeline(*command, "--out", "after")
    assert (refused.status, "prepare it again" in refused.stderr) == (1, True)
    metadata = json.loads(Path("data/scenes/dataset.json").read_text())
    metadata["manifest_sha256"] = sha256(manifest.read_bytes()).hexdigest()
    Path("data/scenes/dataset.json").write_text(json.dumps(metadata))
    ended = pipeline(*command, "--out", "after")
    assert ended.status == 0, ended.stderr
    assert "most often zebra" in ended.stderr
    assert files(Path("after.encoder")) == files(Path("before.encoder"))


def test_encoding_imports_what_the_encoder_needs(project: Path) -> None:
    code = (
        "import sys; from pipeline.text.encode import encode; "
        "encode('data/scenes', 'o', encoder='mean'); print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = {*ended.stdout.split()}
    assert "h5py" in loaded
    assert not {"nltk", "scipy", "sklearn", "torch", "gensim", "dask"} & loaded
