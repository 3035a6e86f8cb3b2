"""The stored form: the same words and numbers back, mapped, one identity, damage refused."""

import hashlib
import json
import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipeline.store.hashing import canonical_json, sha256_of_file
from pipeline.text.vectors import VectorsError, WordVectors, load_vectors, save_vectors
from pipeline.text.vectors.stored import describe_stored

WORDS = ("the", ". . .", "犬", 'a "b"\\', "x\u2028y")


def made(words: tuple[str, ...] = WORDS, dim: int = 3, name: str = "source") -> WordVectors:
    matrix = np.random.default_rng(len(words)).standard_normal((len(words), dim))
    return WordVectors(name, words, matrix.astype(np.float32), hashlib.sha256(b"s").hexdigest())


def based_on_a_mapping(array: Any) -> bool:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


@pytest.mark.parametrize("dim", [1, 3, 50])
@pytest.mark.parametrize("number", [1, 5])
def test_round_trip(tmp_path: Path, number: int, dim: int) -> None:
    vectors = made(WORDS[:number], dim)
    path = tmp_path / "some words.safetensors"
    returned = save_vectors(path, vectors, {"policy": "treebank"})
    read = load_vectors(str(path))
    for found in (returned, read):
        assert found.words == vectors.words
        assert np.array_equal(found.matrix, vectors.matrix)
        assert found.matrix.dtype == np.float32
        assert (found.name, found.sha256) == ("some words", sha256_of_file(path))
        assert found.source_sha256 == vectors.sha256 == vectors.source_sha256
        assert based_on_a_mapping(found.matrix)
        assert not found.matrix.flags.writeable
    described = describe_stored(path)
    assert described["source"] == "source"
    assert described["source_sha256"] == vectors.sha256
    assert described["facts"] == {"policy": "treebank"}
    again = save_vectors(tmp_path / "again.safetensors", read)
    assert again.source_sha256 == vectors.sha256 != again.sha256
    # Anybody's safetensors reads it.
    assert np.array_equal(load_file(path)["matrix"], vectors.matrix)


def test_wanted_words_in_the_file_s_order(tmp_path: Path) -> None:
    vectors = made()
    save_vectors(tmp_path / "v.safetensors", vectors)
    some = load_vectors(str(tmp_path / "v.safetensors"), {"犬", "the", "unheard"})
    assert some.words == ("the", "犬")
    assert np.array_equal(some.matrix, vectors.matrix[[0, 2]])
    assert load_vectors(str(tmp_path / "v.safetensors"), set()).matrix.shape == (0, 3)
    every = load_vectors(str(tmp_path / "v.safetensors"), {*WORDS, "more"})
    assert based_on_a_mapping(every.matrix)


def test_identity_is_of_words_numbers_source_and_metadata(tmp_path: Path) -> None:
    def identity(vectors: WordVectors, metadata: dict[str, Any], name: str = "v") -> str:
        return save_vectors(tmp_path / f"{name}.safetensors", vectors, metadata).sha256

    first = identity(made(), {"seed": 1, "dim": 3})
    assert first == identity(made(), {"dim": 3, "seed": 1}, "renamed")
    others = [
        identity(made(), {"seed": 2, "dim": 3}),
        identity(made(name="other"), {"seed": 1, "dim": 3}),
        identity(made((*WORDS[:4], "z")), {"seed": 1, "dim": 3}),
        identity(WordVectors("source", WORDS, made().matrix, "0" * 64), {"seed": 1, "dim": 3}),
        identity(
            WordVectors("source", WORDS, made().matrix * 2, made().sha256), {"seed": 1, "dim": 3}
        ),
    ]
    assert len({first, *others}) == 6


def test_refusals_when_storing(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"must end in \.safetensors"):
        save_vectors(tmp_path / "v.h5", made())
    with pytest.raises(VectorsError, match="has none of the words to store"):
        save_vectors(tmp_path / "v.safetensors", made(()))
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    described = {"format": "pipeline-vectors", "format_version": 1, "facts": {}}
    metadata = {"vectors": canonical_json({**described, "source_sha256": "0" * 64})}

    def words(values: Any) -> Any:
        return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)

    matrix = np.ones((2, 3), dtype=np.float32)
    for tensors, stated, message in [
        ({"matrix": matrix}, metadata, "not a file of stored"),
        (
            {"matrix": matrix, "words": words(["a", "b"])},
            {"vectors": canonical_json(described)},
            "not a file of .*source_sha256",
        ),
        ({"matrix": matrix, "words": words(["a", "b"])}, None, "not a file of stored"),
        (
            {"matrix": matrix, "words": words(["a", "b"])},
            {"vectors": "[]"},
            "not a file of stored",
        ),
        ({"matrix": matrix, "words": words(["a", 1])}, metadata, "not a list of texts"),
        ({"matrix": matrix.astype(float), "words": words(["a", "b"])}, metadata, "matrix is F64"),
        ({"matrix": matrix[0], "words": words(["a", "b"])}, metadata, "of shape"),
        ({"matrix": matrix, "words": words(["a"])}, metadata, "1 words, 1 of them distinct"),
        ({"matrix": matrix, "words": words(["a", "a"])}, metadata, "2 words, 1 of them distinct"),
    ]:
        save_file(tensors, path, stated)
        with pytest.raises(VectorsError, match=message):
            load_vectors(str(path))


def test_what_the_vectors_were_trained_on_is_stored(tmp_path: Path) -> None:
    said = replace(made(), trained_on=("snli", "eli5"))
    stored = save_vectors(tmp_path / "said.safetensors", said)
    assert stored.trained_on == ("snli", "eli5")
    assert save_vectors(tmp_path / "again.safetensors", stored).trained_on == ("snli", "eli5")
    assert "trained_on" not in describe_stored(_saved(tmp_path / "plain.safetensors"))


def _saved(path: Path) -> Path:
    save_vectors(path, made())
    return path
