"""Trained word vectors: what they learn, the same bytes in every process, leaks, refusals."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pytest
from gensim.models import Word2Vec

from pipeline.text.vectors import VectorsError
from pipeline.text.vectors.corpus import Corpus, leaks, read_lines, refuse_leaks
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.train import train_vectors
from tests.project import PROJECT

SMALL: dict[str, Any] = {"dim": 20, "min_count": 2, "buckets": 20_000, "epochs": 2}
TRAINERS = ["word2vec", "fasttext"]
ALGORITHMS = ["skip-gram", "cbow"]


def sentences(number: int = 300) -> list[list[str]]:
    """Return sentences of two worlds whose words never meet."""
    rng = np.random.default_rng(0)
    worlds = [["dog", "grass", "ball", "runs", "park"], ["ship", "sea", "sails", "wave", "café"]]
    return [list(rng.choice(worlds[i % 2], size=6)) for i in range(number)]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_words_of_one_world_are_nearer(trainer: Any, algorithm: Any) -> None:
    rng = np.random.default_rng(0)
    worlds = [[f"{letter * 6}{k:02}" for k in range(40)] for letter in "xy"]
    made = [list(rng.choice(worlds[i % 2], size=8)) for i in range(2000)]
    settings = Training(trainer, algorithm, **{**SMALL, "epochs": 15})
    calls: list[tuple[int, int, int]] = []
    vectors = train_vectors(
        Corpus([*made, ["once"]]), settings, progress=lambda *call: calls.append(call)
    )
    assert set(vectors.words) == {*worlds[0], *worlds[1]}
    assert vectors.matrix.shape == (80, 20)
    assert vectors.matrix.dtype == np.float32
    assert calls[-1] == (15, 15, 0)
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    x, y = (unit[[vectors.index[word] for word in world]] for world in worlds)
    assert (x @ x.T).mean() > (x @ y.T).mean() + 0.2


def test_word2vec_is_gensim_s() -> None:
    corpus = Corpus(sentences())
    ours = train_vectors(corpus, Training("word2vec", "skip-gram", seed=3, **SMALL))
    oracle = Word2Vec(
        corpus.sentences, sg=1, vector_size=20, min_count=2, epochs=2, seed=3, workers=1
    )
    assert list(ours.words) == oracle.wv.index_to_key
    assert np.array_equal(ours.matrix, oracle.wv.vectors)
    some = train_vectors(corpus, Training("word2vec", seed=3, **SMALL), {"ship", "dog", "unheard"})
    assert sorted(some.words) == ["dog", "ship"]
    assert np.array_equal(some.matrix, [oracle.wv[w] for w in some.words])
    assert some.sha256 == ours.sha256


def test_fasttext_is_fasttext_s_and_has_subwords(tmp_path: Path) -> None:
    corpus = Corpus(sentences())
    ours = train_vectors(corpus, Training("fasttext", **SMALL), {"dogs", "café", "dog"})
    path = tmp_path / "corpus.txt"
    path.write_text("".join(" ".join(s) + "\n" for s in corpus.sentences))
    oracle = fasttext.train_unsupervised(
        str(path), dim=20, minCount=2, bucket=20_000, epoch=2, thread=1, verbose=0, t=1e-3
    )  # its seed is 0, which to its generator is the same as 1
    assert sorted(ours.words) == ["café", "dog", "dogs"]
    assert ours.words[-1] == "dogs"
    assert np.array_equal(ours.matrix, [oracle.get_word_vector(w) for w in ours.words])
    words = set(oracle.words)
    del oracle  # 0.16 GB of hash tables, as each model of fastText has them
    every = train_vectors(corpus, Training("fasttext", **SMALL))
    assert set(every.words) == words - {"</s>"}


PROGRAM = """
import hashlib, json, sys
from pipeline.text.vectors.corpus import Corpus
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.train import train_vectors
def trained(sentences, settings):
    found = []
    for trainer in ("word2vec", "fasttext"):
        for algorithm in ("skip-gram", "cbow"):
            training = Training(trainer, algorithm, **settings)
            made = train_vectors(Corpus(sentences), training, {"dog", "ship", "shipped"})
            content = made.matrix.tobytes() + " ".join(made.words).encode()
            found.append([hashlib.sha256(content).hexdigest(), made.sha256])
    return found
if __name__ == "__main__":
    print(json.dumps(trained(**json.load(sys.stdin))))
"""


def test_two_processes_give_the_same_bytes() -> None:
    given = {"settings": SMALL, "sentences": sentences()}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        # Of this process, the seed is random.
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    here: dict[str, Any] = {"__name__": "here"}
    exec(PROGRAM, here)
    found = here["trained"](**given)
    assert json.loads(ended.stdout) == found
    assert len({content for content, _ in found}) == 4


@pytest.mark.parametrize("trainer", TRAINERS)
def test_seed_and_settings_are_in_numbers_and_identity(trainer: Any) -> None:
    corpus = Corpus(sentences(60))
    base = Training(trainer, **SMALL)
    made = [
        train_vectors(corpus, settings)
        for settings in (base, replace(base, seed=1), replace(base, window=2))
    ]
    made.append(train_vectors(Corpus(sentences(62)), base))
    assert len({vectors.sha256 for vectors in made}) == 4
    assert not np.array_equal(made[0].matrix, made[1].matrix)
    assert made[0].name == f"{trainer}-skip-gram-20d"
    assert ("buckets" in base.to_json()) == (trainer == "fasttext")


def test_tokens_that_look_like_labels_are_words() -> None:
    corpus = Corpus([["__label__dog", "runs"]] * 5)
    made = train_vectors(corpus, Training("fasttext", **SMALL))
    assert set(made.words) == {"__label__dog", "runs"}


@pytest.mark.parametrize(
    ("corpus", "settings", "message"),
    [
        ([], {}, "none of the 0 words"),
        ([["a", "b"], []], {}, "none of the 2 words of the corpus .2 sentences. occurs 2 times"),
        ([["a"] * 10_001], {}, "sentence 1 has 10001 tokens"),
        ([["a b", "a b"]], {"trainer": "fasttext"}, "'a b' has a special meaning"),
        ([["a", "a", "</s>"]], {"trainer": "fasttext"}, "'</s>' has a special meaning"),
        ([["a", "b"]] * 2, {"trainer": "fasttext", "buckets": 17}, "expected 18 or more"),
        ([["a"] * 9], {"dim": 0}, "dim is 0"),
        ([["a"] * 9], {"epochs": 0}, "epochs is 0"),
        ([["a"] * 9], {"seed": -1}, "seed is -1"),
        ([["a"] * 9], {"dim": 100_001}, "dim is 100001"),
    ],
)
def test_refusals(corpus: list[list[str]], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(VectorsError, match=message):
        train_vectors(Corpus(corpus), Training(**{"trainer": "word2vec", **SMALL, **settings}))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_minimum_count_that_no_word_reaches_becomes_1(trainer: Any) -> None:
    corpus = Corpus([["a", "dog"], ["a", "ship", "sails"]])
    asked = Training(trainer, **{**SMALL, "min_count": 3})
    possible = asked.for_words(corpus.counts)
    assert possible == replace(asked, min_count=1)
    assert set(train_vectors(corpus, possible).words) == {"a", "dog", "ship", "sails"}
    assert replace(asked, min_count=2).for_words(corpus.counts).min_count == 2
    assert asked.for_words({}) == asked


def test_leaks_are_found_whatever_case_and_tokenization() -> None:
    held_out = {
        "x#0": "A dog's ball isn't red .",
        "x#1": "two Cafés",
        "y#0": "a dog's BALL isn't red!",
        "z#0": "...",
    }
    corpus = [
        "something else",
        "a dog 's ball is n't red",
        "",
        "!!",
        "TWO CAFE\u0301S",
        "two cafes",
        "two cafés and more",
    ]
    assert leaks(corpus, held_out) == [(2, "x#0"), (2, "y#0"), (5, "x#1")]
    assert leaks([], held_out) == leaks(corpus, {}) == []
    refuse_leaks(Path("c.txt"), [])
    with pytest.raises(
        VectorsError, match=r"c\.txt: 1 lines are held-out captions, .*line 2 is x#0"
    ):
        refuse_leaks(Path("c.txt"), [(2, "x#0"), (2, "y#0")])


def test_leaks_agree_with_a_naive_search() -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(rng.choice(list("ab .A"), size=4)) for _ in range(200)]
    held_out = {f"{k}#0": text for k, text in enumerate(texts[:100])}

    def normal(text: str) -> str:
        return text.lower().replace(" ", "").replace(".", "")

    naive = [
        (line, caption_id)
        for line, text in enumerate(texts[100:], 1)
        for caption_id, caption in held_out.items()
        if normal(text) and normal(text) == normal(caption)
    ]
    assert leaks(texts[100:], held_out) == naive
    assert naive


def test_corpus_files(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("a dog\r\n\ncafé\u2028x".encode())
    assert read_lines(path) == ["a dog", "", "café\u2028x"]
    path.write_bytes(b"a dog\nb\xff\n")
    with pytest.raises(VectorsError, match=r"corpus\.txt, line 2: is not UTF-8"):
        read_lines(path)
    with pytest.raises(VectorsError, match=r"nowhere\.txt: no such corpus"):
        read_lines(tmp_path / "nowhere.txt")
