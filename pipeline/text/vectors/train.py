"""Training of word vectors: word2vec by gensim, fastText by its own library."""

import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from gensim.models import Word2Vec
from gensim.models.callbacks import CallbackAny2Vec

from pipeline.store.extras import require
from pipeline.store.hashing import sha256_of_json
from pipeline.store.progress import Progress, no_progress
from pipeline.text.vectors.corpus import Corpus
from pipeline.text.vectors.settings import FIXED, Training
from pipeline.text.vectors.table import VectorsError, WordVectors

_LONGEST_SENTENCE = 10_000  # gensim silently truncates longer sentences
_END_OF_SENTENCE = "</s>"  # fastText's own entry at every line's end
_SEPARATORS = " \n\r\t\v\f\0"  # of fastText


def train_vectors(
    corpus: Corpus,
    settings: Training,
    vocabulary: Collection[str] | None = None,
    progress: Progress = no_progress,
) -> WordVectors:
    """Train word vectors; deterministic, with one thread and one seed.

    Return the words in `vocabulary` (None: all trained ones) in the trainer's order, most frequent
    first. fastText also has vectors for words that it was not trained on, from their n-grams, and
    reports progress only at its end.
    """
    _check(corpus, settings)
    keep = None if vocabulary is None else frozenset(vocabulary)
    train = _fasttext if settings.trainer == "fasttext" else _word2vec
    words, matrix = train(corpus, settings, keep, progress)
    identity = sha256_of_json({**settings.to_json(), "corpus_sha256": corpus.sha256})
    if not np.isfinite(matrix).all():
        raise VectorsError(f"{settings.name} has diverged: NaN or infinite values")
    return WordVectors(settings.name, words, matrix, identity)


def _check(corpus: Corpus, settings: Training) -> None:
    trained = corpus.vocabulary(settings.min_count)
    if not trained:
        raise VectorsError(
            f"none of the {len(corpus.counts)} words of the corpus ({len(corpus.sentences)} "
            f"sentences) occurs {settings.min_count} times or more; use a larger corpus or a "
            "smaller minimum count"
        )
    for number, sentence in enumerate(corpus.sentences, 1):
        if len(sentence) > _LONGEST_SENTENCE:
            raise VectorsError(
                f"sentence {number} has {len(sentence)} tokens, expected {_LONGEST_SENTENCE} at "
                "most; is it one sentence per line?"
            )
    if settings.trainer == "fasttext":
        for word in corpus.counts:
            if not word or word == _END_OF_SENTENCE or any(c in word for c in _SEPARATORS):
                raise VectorsError(
                    f"the token {word!r} has a special meaning in fastText; remove it from the "
                    "corpus"
                )
        # With one thread, fastText initialises only the first tenth of its matrix
        # (`DenseMatrix::uniform`), words before n-grams, and leaves the rest at zero. An n-gram
        # may start at zero, a word should not.
        if settings.buckets < 9 * len(trained):
            raise VectorsError(
                f"{settings.buckets} buckets are too few for {len(trained)} words, expected "
                f"{9 * len(trained)} or more, so that every word starts with a random vector"
            )


def _word2vec(
    corpus: Corpus, settings: Training, keep: frozenset[str] | None, progress: Progress
) -> tuple[tuple[str, ...], Any]:
    fixed = FIXED["word2vec"]
    model = Word2Vec(
        corpus.sentences,
        sg=int(settings.algorithm == "skip-gram"),
        vector_size=settings.dim,
        window=settings.window,
        min_count=settings.min_count,
        epochs=settings.epochs,
        negative=settings.negative,
        seed=settings.seed,
        alpha=fixed["learning_rate"],
        sample=fixed["subsampling"],
        workers=1,
        hashfxn=_hash,
        callbacks=[_AfterEpoch(settings.epochs, progress)],
    )
    table = model.wv
    rows = [row for row, word in enumerate(table.index_to_key) if keep is None or word in keep]
    return tuple(table.index_to_key[row] for row in rows), table.vectors[rows]


def _hash(text: str) -> int:
    """Return a hash of a text; Python's own `hash` differs between processes."""
    return zlib.crc32(text.encode())


class _AfterEpoch(CallbackAny2Vec):
    """Reports each epoch of gensim as progress."""

    def __init__(self, epochs: int, progress: Progress) -> None:
        self._epochs = epochs
        self._progress = progress
        self._done = 0

    def on_epoch_end(self, model: Word2Vec) -> None:
        self._done += 1
        self._progress(self._done, self._epochs, 0)


def _fasttext(
    corpus: Corpus, settings: Training, keep: frozenset[str] | None, progress: Progress
) -> tuple[tuple[str, ...], Any]:
    fasttext_pybind = require("fasttext_pybind", "fastText training needs", ", or train word2vec")
    from pipeline.text.vectors.subwords import vectors_of

    fixed = FIXED["fasttext"]
    skip_gram = settings.algorithm == "skip-gram"
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "corpus.txt"
        with text.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(" ".join(sentence) + "\n" for sentence in corpus.sentences)
        arguments = fasttext_pybind.args()
        values = {
            "input": str(text),
            "model": getattr(fasttext_pybind.model_name, "skipgram" if skip_gram else "cbow"),
            "loss": fasttext_pybind.loss_name.ns,
            "dim": settings.dim,
            "ws": settings.window,
            "minCount": settings.min_count,
            "epoch": settings.epochs,
            "neg": settings.negative,
            # fastText does not distinguish the seeds 0 and 1.
            "seed": settings.seed + 1,
            "bucket": settings.buckets,
            "lr": fixed["learning_rate"],
            "t": fixed["subsampling"],
            "minn": fixed["ngrams"][0],
            "maxn": fixed["ngrams"][1],
            "thread": 1,
            "verbose": 0,
            # No token starts with it; the default would drop words that start with `__label__`.
            "label": "\n",
        }
        for name, value in values.items():
            setattr(arguments, name, value)
        model = fasttext_pybind.fasttext()
        fasttext_pybind.train(model, arguments)
    progress(settings.epochs, settings.epochs, 0)
    words = [word for word in model.getVocab("strict")[0] if word != _END_OF_SENTENCE]
    return vectors_of(model, words, keep)
