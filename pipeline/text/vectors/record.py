"""The record of what a word vector file was made from, and whether it is up to date."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import read_manifest
from pipeline.store.current.replace import move_aside, move_back
from pipeline.store.hashing import sha256_of_json
from pipeline.store.own_files import reading
from pipeline.store.progress import QUIET
from pipeline.text.tokenizers.tokenizer import tokenizer_called
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import training_corpus
from pipeline.text.vectors.stored import describe_stored, stored_words
from pipeline.text.vectors.table import VectorsError

_OF_CAPTIONS = {
    "corpus_sha256", "sentences", "tokens", "sentences_equal_to_held_out_captions",
    "requested_min_count",
}  # fmt: skip


def vectors_record(file: Path) -> dict[str, Any] | None:
    """Return the record of a file of `store_vectors`; None if the file is missing."""
    if not file.is_file():
        return None
    with reading(file, "a file of stored word vectors", "store them again", VectorsError):
        described, words = describe_stored(file), stored_words(file)
        facts = dict(described["facts"])
        recorded = {
            name: facts[name] for name in ("dataset", "policy", "training") if name in facts
        }
    return {
        **recorded,
        "training": _without_software(recorded.get("training")),
        "source": described.get("source"),
        "words_sha256": sha256_of_json(sorted(set(words))),
    }


def make_way_for(file: Path, expected: dict[str, Any], log: Callable[[str], None]) -> bool:
    """Move vectors with other options aside, and move back those with the requested options.

    `expected` is a record of `expected_vectors`. Return whether the file has, or had, vectors with
    the same options; captions may differ.
    """
    requested = _options(expected)
    options = _options_in(file)
    if options is not None and options != requested:
        log(f"{file} was made with other options: moved to {move_aside(file, _key(options))}")
    if not file.exists() and (
        aside := move_back(file, _key(requested), lambda path: _options_in(path) == requested)
    ):
        log(f"{aside} was made with the requested options: moved back to {file}")
    return options == requested


def expected_vectors(
    dataset: str | Path,
    *,
    source: str | None = None,
    training: Training | None = None,
    tokenizer: str = "treebank",
    split: str = "train",
    corpus: str | Path | None = None,
    allow_leaks: bool = False,
) -> dict[str, Any]:
    """Return the record that an up-to-date file of `store_vectors`, with its arguments, would have.

    Words that a source lacks make its file appear outdated: they are then looked up again, which
    yields the same bytes.
    """
    manifest, splitter = read_manifest(Path(dataset)), tokenizer_called(tokenizer)
    words = {word for text in manifest.captions().texts for word in splitter.tokenize(text)}
    expected: dict[str, Any] = {"dataset": manifest.name, "policy": splitter.to_json()}
    if training is None:
        if source is not None and not source.startswith("sentence-transformer:"):
            expected["source"] = Path(source).stem if Path(source).suffix else source
        return {**expected, "training": None, "words_sha256": sha256_of_json(sorted(words))}
    sentences, training, facts = training_corpus(
        training, manifest, split, corpus, allow_leaks, splitter, QUIET
    )
    if training.trainer == "word2vec":
        words &= {*sentences.vocabulary(training.min_count)}
    return {
        **expected,
        "training": _without_software(facts),
        "words_sha256": sha256_of_json(sorted(words)),
    }


def _options_in(file: Path) -> dict[str, Any] | None:
    try:
        record = vectors_record(file)
    except VectorsError:
        return None
    return record and _options(record)


def _options(record: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a record that is independent of the captions."""
    training = record.get("training")
    if training is not None:
        training = {name: value for name, value in training.items() if name not in _OF_CAPTIONS}
        training["min_count"] = record["training"].get("requested_min_count", training["min_count"])
    return {"policy": record["policy"], "training": training}


def _key(options: dict[str, Any]) -> str:
    return sha256_of_json(options)


def _without_software(facts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the record of a training without versions, which do not make vectors outdated."""
    return facts and {name: value for name, value in facts.items() if name != "software"}
