"""`pipeline text`: named encoders, the same bytes twice, nothing learnt from other splits."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import h5py
import pytest

from pipeline.text.encode import encode
from pipeline.text.fitted import load_encoder
from tests.project import Call

# 50-d vectors and few words, so that codebooks are fitted in a moment.
FISHER = ("--components", 3, "--sample", 500, "--pca", 7)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("mean", ()),
        ("tfidf", ("--vocabulary", "top-20")),
        ("fv-hglmm", FISHER),
        ("bow+mean-w2vv+token-ids-w2vv", ()),
        ("token-ids-yan", ()),
    ],
)
def test_two_runs_give_the_same_bytes(
    encoder: str, options: tuple[object, ...], project: Path, pipeline: Call
) -> None:
    for out in ("one", "two"):
        ended = pipeline(
            "text", "--encoder", encoder, *options, "--dataset", "data/scenes", "--out", out
        )
        assert ended.status == 0, ended.stderr
        assert "MB of memory" in ended.stderr
    assert files(Path("one")) == files(Path("two"))
    names = {str(o)[2:]: value for o, value in zip(options[::2], options[1::2], strict=True)}
    encode("data/scenes", "three", encoder=encoder, **names)  # type: ignore[arg-type]
    assert files(Path("three")) == files(Path("one"))
    assert files(Path("three.encoder")) == files(Path("one.encoder"))
    assert files(Path("one.encoder")) == files(Path("two.encoder"))
    with h5py.File("one/shard-00000-of-00001.h5") as file:
        assert file.attrs["recipe_hash"] in ended.stderr
        features, ids = file["features"][:], file["ids"].asstr()[:]
    captions = {
        f"{entry['id']}#{k}": caption
        for entry in map(json.loads, Path("data/scenes/manifest.jsonl").read_text().splitlines())
        for k, caption in enumerate(entry["captions"])
    }
    texts = [captions[caption_id] for caption_id in ids[:9]]
    again = load_encoder(Path("one.encoder"), texts).encode(texts)
    assert (again == features[:9]).all()
    ended = pipeline(
        "text", "--encoder", encoder, *options, "--dataset", "data/scenes", "--out", "one"
    )
    assert ended.status == 0
    assert f"{len(ids)} rows are done" in ended.stderr
    assert "principal components" not in ended.stderr


def test_captions_of_other_splits_do_not_change_what_is_fitted(
    project: Path, pipeline: Call
) -> None:
    manifest = Path("data/scenes/manifest.jsonl")
    command = (
        "text", "--encoder", "bow+fv-gmm", *FISHER[:4], "--codebook-words", "training",
        "--vocabulary", "min-1", "--dataset", "data/scenes",
    )  # fmt: skip
    assert pipeline(*command, "--out", "before").status == 0
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if line["split"] != "train":
            line["captions"] = [f"{c} zebra zebra zebra zebra zebra" for c in line["captions"]]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metadata = json.loads(Path("data/scenes/dataset.json").read_text())
    metadata["manifest_sha256"] = sha256(manifest.read_bytes()).hexdigest()
    Path("data/scenes/dataset.json").write_text(json.dumps(metadata))
    ended = pipeline(*command, "--out", "after")
    assert ended.status == 0, ended.stderr
    assert "most often zebra" in ended.stderr
    assert files(Path("after.encoder")) == files(Path("before.encoder"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--encoder", "bow", "--vectors", "glove-6b-50d"), "has no option vectors"),
        (("--encoder", "mean", "--vectors", "nowhere.txt"), "no such file of word vectors"),
        (("--encoder", "token-ids", "--pca", 5), "principal components are meaningless"),
        (("--encoder", "tfidf", "--wordnet", "nowhere"), "nowhere"),
        (("--encoder", "mean", "--fit-split", "trian"), "trian"),
    ],
)
def test_mistakes_end_in_one_paragraph(
    arguments: tuple[object, ...], expected: str, project: Path, pipeline: Call
) -> None:
    ended = pipeline("text", *arguments, "--dataset", "data/scenes", "--out", "out")
    assert ended.status == (2 if "did you mean" in expected else 1)
    assert expected in ended.stderr
    assert not list(Path().glob("out*"))


def test_an_unknown_encoder_is_wrong_usage(project: Path, pipeline: Call) -> None:
    ended = pipeline("text", "--encoder", "means", "--dataset", "data/scenes", "--out", "out")
    assert (ended.status, "did you mean mean" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--encoder", "bow", "--vocabulary", "min-1000000"), "all 138 words"),
        (("--encoder", "mean", "--pca", 100000), "50 components, not 100000"),
    ],
)
def test_what_is_fitted_shrinks_to_the_captions(
    arguments: tuple[object, ...], expected: str, project: Path, pipeline: Call
) -> None:
    ended = pipeline("text", *arguments, "--dataset", "data/scenes", "--out", "out")
    assert (ended.status, expected in ended.stderr) == (0, True), ended.stderr


def test_another_encoder_is_not_put_over_a_fitted_one(project: Path, pipeline: Call) -> None:
    command = ("text", "--dataset", "data/scenes", "--out", "out", "--encoder", "bow")
    assert pipeline(*command).status == 0
    ended = pipeline(*command, "--vocabulary", "min-9")
    assert ended.status == 1
    assert "min-9" in ended.stderr
    assert "--update fits it again" in ended.stderr


def test_components_on_a_device_that_is_not_there(project: Path, pipeline: Call) -> None:
    ended = pipeline(
        "text", "--encoder", "mean", "--pca", 5, "--device", "abacus",
        "--dataset", "data/scenes", "--out", "out",
    )  # fmt: skip
    assert ended.status == 2
    assert "no device is called 'abacus'" in ended.stderr
    assert not Path("out").exists()


def modules_after(code: str) -> set[str]:
    """Return the modules that a fresh Python has loaded after some code."""
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split())


def test_help_needs_no_heavy_package() -> None:
    heavy = {"nltk", "regex", "scipy", "sklearn", "h5py", "torch", "gensim", "pyarrow", "dask"}
    assert not heavy & modules_after("import stages.text, stages.vectors")


def test_encoding_imports_what_the_encoder_needs(project: Path) -> None:
    code = "from pipeline.text.encode import encode; encode('data/scenes', 'o', encoder='mean')"
    loaded = modules_after(code)
    assert "h5py" in loaded
    assert not {"nltk", "scipy", "sklearn", "torch", "gensim", "dask"} & loaded
