"""`pipeline vectors` from the command line: what it stores, says and refuses."""

import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.errors import UnknownName
from pipeline.store.hashing import sha256_of_file
from pipeline.text.vectors import load_vectors
from pipeline.text.vectors.record import vectors_record
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import store_vectors
from pipeline.text.vectors.stored import describe_stored
from tests.project import Call

FAST = ("--dim", 10, "--min-count", 1, "--epochs", 1)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three images, one in each split, in the current folder."""
    monkeypatch.chdir(tmp_path)
    entries = (
        ImageEntry("a", "a.jpg", "train", ("A dog runs.", "The dog's ball is red!")),
        ImageEntry("b", "b.jpg", "val", ("A cat sleeps.", "A dog runs")),
        ImageEntry("c", "c.jpg", "test", ("Two zzqqzz cats.",)),
    )
    manifest = Manifest("tiny", tmp_path, entries, "none", "made up", {})
    manifest.write(tmp_path / "tiny")
    return tmp_path


def last_line(stderr: str) -> str:
    return stderr.strip().splitlines()[-1]


def test_a_source_is_restricted_to_the_words_of_all_splits(dataset: Path, pipeline: Call) -> None:
    ended = pipeline(
        "vectors", "--source", "glove-6b-50d", "--dataset", "tiny", "--out", "out/g.safetensors"
    )
    assert (ended.status, ended.stdout) == (0, "")
    stored = load_vectors("out/g.safetensors")
    wanted = {"a", "dog", "runs", "the", "'s", "ball", "is", "red", "cat", "sleeps", "two", "cats"}
    assert set(stored.words) == wanted
    glove = load_vectors("glove-6b-50d", wanted)
    assert stored.words == glove.words
    assert np.array_equal(stored.matrix, glove.matrix)
    described = describe_stored(Path("out/g.safetensors"))
    assert (described["source"], described["source_sha256"]) == ("glove-6b-50d", glove.sha256)
    assert described["facts"]["dataset"] == "tiny"
    assert described["facts"]["policy"]["name"] == "treebank"
    assert "all splits" in ended.stderr
    line = last_line(ended.stderr)
    digest = sha256_of_file(Path("out/g.safetensors"))
    assert line.startswith("12 words (50,), 94.44 % of the caption tokens covered")
    assert digest in line
    # A stored file is a source too.
    ended = pipeline(
        "vectors", "--source", "out/g.safetensors", "--dataset", "tiny", "--tokenizer", "klein",
        "--out", "again.safetensors",
    )  # fmt: skip
    assert ended.status == 0
    assert describe_stored(Path("again.safetensors"))["source_sha256"] == glove.sha256


def test_the_job_writes_the_commands_bytes(dataset: Path, pipeline: Call) -> None:
    arguments = ("vectors", "--dataset", "tiny", "--tokenizer", "w2vv")
    ended = pipeline(*arguments, "--source", "glove-6b-50d", "--out", "g.safetensors")
    assert ended.status == 0, ended.stderr
    stored = store_vectors("tiny", "g2.safetensors", source="glove-6b-50d", tokenizer="w2vv")
    assert Path("g2.safetensors").read_bytes() == Path("g.safetensors").read_bytes()
    assert f"{100 * stored.coverage:.2f} % of the caption tokens" in ended.stderr
    ended = pipeline(*arguments, "--train", "word2vec", *FAST, "--out", "w.safetensors")
    assert ended.status == 0, ended.stderr
    training = Training("word2vec", dim=10, min_count=1, epochs=1)
    stored = store_vectors("tiny", "w2.safetensors", training=training, tokenizer="w2vv")
    assert stored.vectors.dim == 10
    assert Path("w2.safetensors").read_bytes() == Path("w.safetensors").read_bytes()
    with pytest.raises(UnknownName, match="tokenizer 'x' is unknown; expected one of kiros"):
        store_vectors("tiny", "x.safetensors", source="glove-6b-50d", tokenizer="x")


@pytest.mark.parametrize("trainer", ["word2vec", "fasttext"])
def test_training_reads_the_training_split_alone(
    dataset: Path, pipeline: Call, trainer: str
) -> None:
    buckets = ("--buckets", 1000) if trainer == "fasttext" else ()
    arguments = ("vectors", "--train", trainer, "--dataset", "tiny", *FAST, *buckets)
    ended = pipeline(*arguments, "--out", "one.safetensors")
    assert ended.status == 0, ended.stderr
    assert pipeline(*arguments, "--out", "two.safetensors").status == 0
    assert Path("one.safetensors").read_bytes() == Path("two.safetensors").read_bytes()
    assert ("buckets=" in ended.stderr) == (trainer == "fasttext")
    assert "2 sentences, 9 tokens, 8 words that occur 1 times or more" in ended.stderr
    # The validation split has one of the training captions: said and recorded, not refused.
    assert "1 sentences of split train equal captions of other splits" in ended.stderr
    training = describe_stored(Path("one.safetensors"))["facts"]["training"]
    assert training["sentences_equal_to_held_out_captions"] == 1
    assert (training["split"], training["corpus"], training["seed"]) == ("train", None, 0)
    words = set(load_vectors("one.safetensors").words)
    learnt = {"a", "dog", "runs", "the", "'s", "ball", "is", "red"}
    subwords = {"cat", "sleeps", "two", "zzqqzz", "cats"}
    assert words == (learnt | subwords if trainer == "fasttext" else learnt)


def test_a_corpus_with_held_out_captions_is_refused(dataset: Path, pipeline: Call) -> None:
    Path("corpus.txt").write_text(
        "a dog runs far\ntwo zzqqzz cats\na cat sleeps\nTwo Zzqqzz Cats\n"
    )
    arguments = (
        "vectors", "--train", "word2vec", "--dataset", "tiny", "--corpus", "corpus.txt", *FAST
    )  # fmt: skip
    ended = pipeline(*arguments, "--out", "v.safetensors")
    assert ended.status == 1
    assert "corpus.txt: 3 lines are held-out captions" in ended.stderr
    assert "line 2 is c#0" in ended.stderr
    assert not Path("v.safetensors").exists()
    ended = pipeline(*arguments, "--allow-leaks", "--out", "v.safetensors")
    assert ended.status == 0
    training = describe_stored(Path("v.safetensors"))["facts"]["training"]
    assert training["sentences_equal_to_held_out_captions"] == 3
    assert (training["split"], training["corpus"]) == (None, "corpus.txt")
    assert "zzqqzz" in load_vectors("v.safetensors").words
    assert "far" not in load_vectors("v.safetensors").words
    Path("corpus.txt").write_text("a dog runs far\na cat\n")
    assert pipeline(*arguments, "--out", "w.safetensors").status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("--out v.safetensors", 2, "either --source or --train"),
        ("--source g.txt --train word2vec --out v.safetensors", 2, "either --source or --train"),
        ("--source glove-6b-50d --dim 3 --out v.safetensors", 2, "--dim is for --train"),
        ("--source glove-6b-50d --min-count 3 --out v.safetensors", 2, "--min-count is for"),
        ("--train word2vec --buckets 9 --out v.safetensors", 2, "--buckets is for --train fast"),
        (
            "--train word2vec --allow-leaks --out v.safetensors",
            2,
            "leaks requires --corpus",
        ),
        ("--source glove-6b-50d --out v.h5", 2, "must end in .safetensors"),
        ("--source nowhere.vec --out v.safetensors", 1, "nowhere.vec: no such file"),
        ("--train word2vec --split dev --out v.safetensors", 1, "no split 'dev'"),
        ("--train word2vec --corpus no.txt --out v.safetensors", 1, "no.txt: no such corpus"),
    ],
)
def test_refusals(dataset: Path, pipeline: Call, arguments: str, status: int, message: str) -> None:
    ended = pipeline("vectors", "--dataset", "tiny", *arguments.split())
    assert ended.status == status
    assert message in ended.stderr
    assert not Path("v.safetensors").exists()


def test_words_that_are_all_rare_are_trained(dataset: Path, pipeline: Call) -> None:
    ended = pipeline(
        "vectors", "--dataset", "tiny", "--train", "word2vec", "--out", "v.safetensors"
    )
    assert ended.status == 0, ended.stderr
    assert "all words, since none of them occurs 5 times" in ended.stderr
    training = vectors_record(Path("v.safetensors"))["training"]  # type: ignore[index]
    assert (training["min_count"], training["requested_min_count"]) == (1, 5)


def test_help_has_an_example_and_is_listed(pipeline: Call) -> None:
    assert re.search("Examples?:", pipeline("vectors", "--help").stdout)
    assert re.search(r"\bvectors\b", pipeline("--help").stdout)
