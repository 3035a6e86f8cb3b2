"""`pipeline vectors` from the command line: what it stores and logs."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import Manifest
from pipeline.store.errors import UnknownName
from pipeline.store.hashing import sha256_of_file
from pipeline.text.vectors import load_vectors
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import store_vectors, vectors_record
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


def test_a_source_is_restricted_to_the_words_of_all_splits(dataset: Path, pipeline: Call) -> None:
    command = ("vectors", "--dataset", "tiny", "--out", "g.safetensors", "--source")
    ended = pipeline(*command, "glove-6b-50d")
    assert (ended.status, ended.stdout) == (0, "")
    found = load_vectors("g.safetensors")
    words = {"a", "dog", "runs", "the", "'s", "ball", "is", "red", "cat", "sleeps", "two", "cats"}
    assert set(found.words) == words
    glove = load_vectors("glove-6b-50d", words)
    assert found.words == glove.words
    assert np.array_equal(found.matrix, glove.matrix)
    described = describe_stored(Path("g.safetensors"))
    assert (described["source"], described["source_sha256"]) == ("glove-6b-50d", glove.sha256)
    assert described["facts"]["dataset"] == "tiny"
    assert "all splits" in ended.stderr
    line = ended.stderr.strip().splitlines()[-1]
    assert line.startswith("12 words (50,), 94.44 % of the caption tokens covered")
    assert sha256_of_file(Path("g.safetensors")) in line
    # A stored file is a source too.
    again = ("--tokenizer", "klein", "--out", "again.safetensors")
    assert pipeline(*command, "g.safetensors", *again).status == 0
    assert describe_stored(Path("again.safetensors"))["source_sha256"] == glove.sha256


def test_the_command_writes_the_bytes_of_the_job(dataset: Path, pipeline: Call) -> None:
    command = ("vectors", "--dataset", "tiny", "--tokenizer", "w2vv", "--train", "word2vec", *FAST)
    assert pipeline(*command, "--out", "w.safetensors").status == 0
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


def test_words_that_are_all_rare_are_trained(dataset: Path, pipeline: Call) -> None:
    ended = pipeline(
        "vectors", "--dataset", "tiny", "--train", "word2vec", "--out", "v.safetensors"
    )
    assert ended.status == 0, ended.stderr
    assert "all words, since none of them occurs 5 times" in ended.stderr
    training = vectors_record(Path("v.safetensors"))["training"]  # type: ignore[index]
    assert (training["min_count"], training["requested_min_count"]) == (1, 5)
