"""The job of `pipeline vectors`: word vectors for a dataset's words, loaded or trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.store.errors import WrongUsage
from pipeline.store.progress import QUIET, Monitor
from pipeline.text.encoders.base import VocabularyReport, report_on
from pipeline.text.tokenizers.tokenizer import Tokenizer, tokenizer_called
from pipeline.text.vectors.corpus import Corpus, leaks, read_lines, refuse_leaks
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.sources import load_vectors
from pipeline.text.vectors.stored import SUFFIX, save_vectors
from pipeline.text.vectors.table import WordVectors

_MB = 1e6


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
    Training reads the captions of one split, or a corpus without captions of the other splits; the
    trained words of all splits are stored. Deterministic: the same call yields the same bytes. The
    file is a source for the option `vectors` of `pipeline.encode`.

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
