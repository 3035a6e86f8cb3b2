"""fastText models against fasttext's own get_word_vector, gensim's reader, and damaged files."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pytest
from gensim.models.fasttext import load_facebook_vectors

from pipeline.store.hashing import sha256_of_file
from pipeline.text.vectors import VectorsError, load_vectors

DIM, BUCKET = 10, 20_000
SENTENCES = ["a dog runs", "two dogs run on the grass", "a café in new_york", "犬 と 猫"] * 5


def trained(folder: Path, **settings: Any) -> tuple[Path, Any]:
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES) + "\n")
    model = fasttext.train_unsupervised(
        str(corpus), dim=DIM, bucket=BUCKET, minCount=1, thread=1, verbose=0, epoch=2, **settings
    )
    path = folder / "tiny.bin"
    model.save_model(str(path))
    return path, model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    return trained(tmp_path_factory.mktemp("fasttext"))


@pytest.fixture
def damaged(model: tuple[Path, Any], tmp_path: Path) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        path = tmp_path / "damaged.bin"
        path.write_bytes(data)
        return str(path)

    return write


# The first test, before the fixture `model`: each model of fasttext is 0.1 GB.
def test_a_word_without_an_ngram_is_not_found(tmp_path: Path) -> None:
    path = trained(tmp_path, minn=5, maxn=6)[0]
    assert load_vectors(str(path), {"x", "dog", "dogged"}).words == ("dog", "dogged")
    path = trained(tmp_path, maxn=0)[0]  # words alone
    assert load_vectors(str(path), {"dog", "dogged"}).words == ("dog",)


def test_dictionary_and_subwords_agree_with_fasttext_and_gensim(model: tuple[Path, Any]) -> None:
    path, oracle = model
    ours = load_vectors(str(path))
    assert ours.words == tuple(oracle.words)
    assert (ours.name, ours.dim, ours.sha256) == ("tiny", DIM, sha256_of_file(path))
    assert np.array_equal(ours.matrix, [oracle.get_word_vector(w) for w in ours.words])
    wanted = ["zebra", "dogging", "grass", "a", "ungesehen", "犬猫"]
    some = load_vectors(str(path), wanted)
    assert some.words == ("a", "grass", "dogging", "ungesehen", "zebra", "犬猫")
    assert np.array_equal(some.matrix, [oracle.get_word_vector(w) for w in some.words])
    assert some.matrix.any(axis=1).all()
    peer = load_facebook_vectors(str(path))
    assert np.abs(some.matrix - [peer[w] for w in some.words]).max() < 1e-6


def test_truncated_models_are_refused(
    model: tuple[Path, Any], damaged: Callable[[bytes], str]
) -> None:
    data = model[0].read_bytes()
    output_matrix = data.index(struct.pack("<2q", len(model[1].words), DIM))
    cuts = [4, 7, 40, 70, 95, 100, len(data) // 2, output_matrix - 1, output_matrix, len(data) - 1]
    for cut in cuts:
        with pytest.raises(VectorsError, match="ends inside its"):
            load_vectors(damaged(data[:cut]), {"dog"})
    with pytest.raises(VectorsError, match="1 bytes at the end"):
        load_vectors(damaged(data + b"x"))


def test_inconsistent_models_are_refused(
    model: tuple[Path, Any], damaged: Callable[[bytes], str]
) -> None:
    data = model[0].read_bytes()
    rows = len(model[1].words) + BUCKET
    input_matrix = data.index(struct.pack("<2q", rows, DIM))
    nan = struct.pack("<f", float("nan")) * DIM
    dog = input_matrix + 16 + 4 * DIM * model[1].get_word_id("dog")
    for at, new, message in [
        (4, struct.pack("<i", 13), "version 13"),
        (8, struct.pack("<i", DIM + 1), "are inconsistent"),
        (input_matrix, struct.pack("<2q", rows - 1, DIM), "are inconsistent|ends inside"),
        (input_matrix, struct.pack("<2q", 1 << 40, DIM), "ends inside its .* input matrix"),
        (input_matrix - 1, b"\x01", "quantised"),
        (dog, nan, "the vector of 'dog' has NaN"),
    ]:
        with pytest.raises(VectorsError, match=message) as caught:
            load_vectors(damaged(data[:at] + new + data[at + len(new) :]), {"dog"})
        assert "damaged.bin" in str(caught.value)


def test_words_that_are_not_utf_8_are_left_out(
    model: tuple[Path, Any], damaged: Callable[[bytes], str]
) -> None:
    vectors = load_vectors(damaged(model[0].read_bytes().replace(b"dogs\0", b"d\xffgs\0")), None)
    assert vectors.words == tuple(word for word in model[1].words if word != "dogs")
    assert [*vectors.notes.values()] == [1]
    assert np.array_equal(vectors.matrix[0], model[1].get_word_vector(vectors.words[0]))
