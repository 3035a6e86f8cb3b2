"""The job of `pipeline vectors`: word vectors for a dataset's words, loaded or trained.

A file records what it was made from: `vectors_record` of one that has the words and options of
`expected_vectors` is up to date.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.store.current.record import Record, first_difference
from pipeline.store.current.replace import Contents, make_way
from pipeline.store.errors import WrongUsage
from pipeline.store.hashing import sha256_of_json
from pipeline.store.own_files import reading
from pipeline.store.progress import QUIET, Monitor
from pipeline.text.encoders.base import VocabularyReport, report_on
from pipeline.text.tokenizers.tokenizer import Tokenizer, tokenizer_called
from pipeline.text.vectors.corpus import Corpus, leaks, read_lines, refuse_leaks
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.sources import load_vectors
from pipeline.text.vectors.stored import SUFFIX, describe_stored, save_vectors, stored_words
from pipeline.text.vectors.table import VectorsError, WordVectors

_MB = 1e6
_OF_CAPTIONS = {
    "corpus_sha256", "sentences", "tokens", "sentences_equal_to_held_out_captions",
    "requested_min_count",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Stored word vectors and their coverage."""

    vectors: WordVectors  # memory-mapped
    report: VocabularyReport  # on the dataset's captions

    @property
    def coverage(self) -> float:
        """Share of the captions' tokens that have a vector, 0 to 1; 1 without tokens."""
        return 1 - self.report.oov_tokens / max(self.report.tokens, 1)


def store_vectors(
    dataset: str | Path,
    out: str | Path,
    *,
    source: str | None = None,
    training: Training | None = None,
    tokenizer: str = "treebank",
    split: str = "train",
    corpus: str | Path | None = None,
    allow_leaks: bool = False,
    monitor: Monitor = QUIET,
) -> StoredVectors:
    """Store word vectors for the words of all splits of a dataset, from a source or trained.

    Vectors from a source are independent of the dataset, so the words of all splits are looked up.
    Training reads the captions of one split, or a corpus without captions of the other splits;
    every word of the dataset that it learns is stored. Deterministic: the same call yields the same
    bytes. The file is a source for the option `vectors` of `pipeline.encode`.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. Output file, a `.safetensors`.
    source : str or None. Vectors to load, as `load_vectors` accepts them.
    training : Training or None. Settings to train vectors instead.
    tokenizer : str. Tokenizer of captions and corpus, a name in `TOKENIZERS`.
    split : str. Split of the captions to train on.
    corpus : str, Path or None. UTF-8 file with one sentence per line, to train on instead of the
        split's captions.
    allow_leaks : bool. Whether to train on a corpus that contains captions of other splits; the
        file records their number.
    monitor : Monitor. Receives log lines and the progress of training.

    Returns
    -------
    StoredVectors
        The vectors, (words, dim) float32, and their coverage of the captions.

    Raises
    ------
    WrongUsage
        Neither or both of `source` and `training` are set, `allow_leaks` is set without `corpus`,
        or the file name has another suffix.
    UnknownName
        The tokenizer is unknown.
    VectorsError
        Vectors or corpus cannot be read, the corpus contains captions of other splits, vectors
        cannot be trained, or no word is left to store.

    References
    ----------
    Dong et al. 2018 (Word2VisualVec), III-A, train word2vec on tags of images; see `Training`.

    Examples
    --------
    >>> stored = pipeline.store_vectors("data/mine", "words.safetensors", source="glove-6b-50d")
    >>> stored.vectors.dim, stored.coverage > 0.9
    (50, True)
    """
    out = Path(out)
    if (source is None) == (training is None):
        raise WrongUsage("set either `source=...` or `training=...`")
    if allow_leaks and corpus is None:
        raise WrongUsage("`allow_leaks=True` requires `corpus=...`")
    if out.suffix != SUFFIX:
        raise WrongUsage(f"`out={out}`: the file name must end in {SUFFIX}")
    manifest = read_manifest(Path(dataset))
    splitter = tokenizer_called(tokenizer)
    captions = manifest.captions().texts
    words = {word for caption in captions for word in splitter.tokenize(caption)}
    metadata: dict[str, Any] = {
        "dataset": manifest.name,
        "policy": splitter.to_json(),
        "vocabulary": "words of all splits",
    }
    monitor.log(f"{len(captions)} captions of all splits have {len(words)} distinct words")
    if source is not None:
        file = Path(source)
        size = f" ({file.stat().st_size / _MB:.1f} MB)" if file.is_file() else ""
        monitor.log(f"looking up the words of all splits in {source}{size}")
        vectors = load_vectors(source, words)
        for what, number in vectors.notes.items():
            monitor.log(f"{source}: {what}: {number}")
    else:
        assert training is not None
        sentences, possible, metadata["training"] = training_corpus(
            training, manifest, split, corpus, allow_leaks, splitter, monitor
        )
        if possible != training:
            monitor.log(
                f"{training.name}: all words, since none of them occurs {training.min_count} times"
            )
        vectors = _train(sentences, possible, words, monitor)
    monitor.log(
        f"storing {len(vectors.words)} x {vectors.dim} float32 numbers, "
        f"{vectors.matrix.nbytes / _MB:.1f} MB, in {out}"
    )
    stored = save_vectors(out, vectors, metadata)
    report = report_on(map(splitter.tokenize, captions), stored.index)
    monitor.log(report.text())
    return StoredVectors(stored, report)


def vectors_record(file: Path) -> Record | None:
    """Return the record of a file of `store_vectors`; None if the file is missing."""
    if not file.is_file():
        return None
    with reading(file, "a file of stored word vectors", "store them again", VectorsError):
        described, words = describe_stored(file), stored_words(file)
        facts = dict(described["facts"])
        return {
            **{name: facts[name] for name in ("dataset", "policy") if name in facts},
            "training": _without_software(facts.get("training")),
            "source": described.get("source"),
            "words_sha256": sha256_of_json(sorted(set(words))),
        }


def expected_vectors(
    dataset: str | Path,
    *,
    source: str | None = None,
    training: Training | None = None,
    tokenizer: str = "treebank",
    split: str = "train",
    corpus: str | Path | None = None,
    allow_leaks: bool = False,
) -> Record:
    """Return the record that an up-to-date file of `store_vectors`, with its arguments, would have.

    Words that a source lacks make its file appear outdated: they are then looked up again, which
    yields the same bytes.
    """
    manifest, splitter = read_manifest(Path(dataset)), tokenizer_called(tokenizer)
    words = {word for text in manifest.captions().texts for word in splitter.tokenize(text)}
    expected: dict[str, Any] = {"dataset": manifest.name, "policy": splitter.to_json()}
    facts = None
    if training is not None:
        sentences, training, facts = training_corpus(
            training, manifest, split, corpus, allow_leaks, splitter, QUIET
        )
        if training.trainer == "word2vec":
            words &= {*sentences.vocabulary(training.min_count)}
    elif source is not None and not source.startswith("sentence-transformer:"):
        expected["source"] = Path(source).stem if Path(source).suffix else source
    return {
        **expected,
        "training": _without_software(facts),
        "words_sha256": sha256_of_json(sorted(words)),
    }


def make_way_for_vectors(file: Path, expected: Record, log: Callable[[str], None]) -> bool:
    """Move vectors with other options than a record aside, and those with its options back.

    Return whether the file had vectors with its options, perhaps of other captions.
    """
    requested = _options(expected)

    def contents(path: Path) -> Contents | None:
        with suppress(VectorsError):
            if (record := vectors_record(path)) is not None:
                unlike = first_difference(options := _options(record), requested)
                return sha256_of_json(options), unlike and f"was made with other options ({unlike})"
        return None

    before = contents(file)
    for line in make_way(file, sha256_of_json(requested), contents):
        log(line)
    return before is not None and not before[1]


def _options(record: Record) -> dict[str, Any]:
    """Return the part of a record that is independent of the captions."""
    training = record.get("training")
    if training is not None:
        training = {name: value for name, value in training.items() if name not in _OF_CAPTIONS}
        training["min_count"] = record["training"].get("requested_min_count", training["min_count"])
    return {"policy": record.get("policy"), "training": training}


def _without_software(facts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the record of a training without versions, which do not make vectors outdated."""
    return facts and {name: value for name, value in facts.items() if name != "software"}


def training_corpus(
    training: Training,
    manifest: Manifest,
    split: str,
    corpus: str | Path | None,
    allow_leaks: bool,
    tokenizer: Tokenizer,
    monitor: Monitor,
) -> tuple[Corpus, Training, dict[str, Any]]:
    """Return the sentences to train on, the effective settings, and the record for the file."""
    corpus = None if corpus is None else Path(corpus)
    lines = manifest.captions(split).texts if corpus is None else read_lines(corpus)
    others = [manifest.captions(name) for name in manifest.counts if name != split]
    held_out = {key: text for c in others for key, text in zip(c.ids, c.texts, strict=True)}
    leaked = leaks(lines, held_out)
    if corpus is not None and not allow_leaks:
        refuse_leaks(corpus, leaked)
    leaked_lines = len({line for line, _ in leaked})
    if leaked_lines:
        where = f"split {split}" if corpus is None else str(corpus)
        monitor.log(
            f"{leaked_lines} sentences of {where} equal captions of other splits; this is recorded"
        )
    sentences = Corpus([tokenizer.tokenize(line) for line in lines])
    # The minimum count is 1 if no word reaches the requested one, which is then recorded too.
    possible = training.for_words(sentences.counts)
    requested = {} if possible == training else {"requested_min_count": training.min_count}
    return (
        sentences,
        possible,
        {
            **possible.to_json(),
            "split": split if corpus is None else None,
            "corpus": None if corpus is None else corpus.name,
            "corpus_sha256": sentences.sha256,
            "sentences": len(lines),
            "tokens": sentences.counts.total(),
            "sentences_equal_to_held_out_captions": leaked_lines,
            **requested,
        },
    )


def _train(sentences: Corpus, training: Training, words: set[str], monitor: Monitor) -> WordVectors:
    # Imported here: gensim takes a second to import, and sources do not need it.
    from pipeline.text.vectors.train import train_vectors

    trained = len(sentences.vocabulary(training.min_count))
    monitor.log(
        f"{len(sentences.sentences)} sentences, {sentences.counts.total()} tokens, {trained} "
        f"words that occur {training.min_count} times or more; {training.name} needs "
        f"{training.memory(trained) / _MB:.1f} MB for its matrices"
    )
    if training.trainer == "fasttext":
        monitor.log("fastText reports no progress before its end")
    with monitor.progress(training.name, "epoch") as progress:
        return train_vectors(sentences, training, words, progress)
