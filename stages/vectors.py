"""`pipeline vectors`: the word vectors of a dataset's words, read or trained, become one file."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.text.encoders.base import report_on
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.vectors import STORED_SUFFIX, WordVectors, load_vectors, save_vectors
from pipeline.text.vectors.corpus import Corpus, leaks, read_lines, refuse_leaks
from pipeline.text.vectors.settings import Training
from stages.console import OUTPUT, log_done, log_settings, progress_of

_TRAINING = (
    "split", "corpus", "allow_leaks", "algorithm", "dim", "window", "min_count", "epochs",
    "negative", "seed", "buckets",
)  # fmt: skip
_MB = 1e6


def _number(name: str, text: str, smallest: int = 1) -> Any:
    default = getattr(Training, name)
    return click.option(
        f"--{name.replace('_', '-')}",
        type=click.IntRange(smallest),
        default=default,
        show_default=True,
        help=f"Training: {text}",
    )


@click.command()
@click.option(
    "--source",
    help="Vectors to read: glove-6b-50d (packaged), a .txt (GloVe or word2vec text), a .vec or "
    ".bin (fastText or word2vec), a .safetensors of this command.",
)
@click.option("--train", type=click.Choice(["word2vec", "fasttext"]), help="Train vectors instead.")
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="The file, a .safetensors.")
@click.option(
    "--tokenizer",
    type=click.Choice(list(TOKENIZERS)),
    default="treebank",
    show_default=True,
    help="How captions and corpus are split into words.",
)
@click.option(
    "--split", default="train", show_default=True, help="Training: the split whose captions."
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    help="Training: a UTF-8 file with one sentence a line instead of the split's captions.",
)
@click.option(
    "--allow-leaks",
    is_flag=True,
    help="Training: use a corpus though it contains captions of other splits.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["skip-gram", "cbow"]),
    default=Training.algorithm,
    show_default=True,
    help="Training: what predicts what.",
)
@_number("dim", "length of the vectors.")
@_number("window", "words to each side at most.")
@_number("min_count", "occurrences below which a word is left out.")
@_number("epochs", "passes over the corpus.")
@_number("negative", "negative samples a word.")
@_number("seed", "seed of the one thread.", 0)
@_number("buckets", "n-gram vectors of fastText.")
@click.pass_context
def vectors(
    ctx: click.Context,
    source: str | None,
    train: str | None,
    dataset: Path,
    out: Path,
    tokenizer: str,
    split: str,
    corpus: Path | None,
    allow_leaks: bool,
    **numbers: Any,
) -> None:
    """Store word vectors for the words of a dataset, from a source or trained here.

    Vectors from a source are looked up for the words of all splits: they were made without the
    dataset. Training reads the captions of one split, or a corpus that has no caption of the
    others; the words of all splits that it has learnt are stored.

    \b
    Examples:
      pipeline vectors --source glove.6B.300d.txt --dataset data/flickr8k \\
          --out data/vectors/flickr8k/glove-6b-300d.safetensors
      pipeline vectors --train word2vec --dataset data/flickr8k --split train --dim 500 --seed 0 \\
          --out data/vectors/flickr8k/word2vec-500d.safetensors
    """
    _check_usage(ctx, source, train, corpus, allow_leaks, out)
    shown = {"split": split, "corpus": corpus, **numbers} if train else {}
    if train == "word2vec":
        del shown["buckets"]
    log_settings(
        "vectors",
        source=source,
        train=train,
        dataset=dataset,
        out=out,
        tokenizer=tokenizer,
        **shown,
    )
    started = time.monotonic()
    manifest = read_manifest(dataset)
    rule = TOKENIZERS[tokenizer]
    tokens = [rule.tokenize(text) for text in _texts(manifest).values()]
    words = {word for caption in tokens for word in caption}
    facts: dict[str, Any] = {
        "dataset": manifest.name,
        "policy": rule.to_json(),
        "vocabulary": "words of all splits",
    }
    log_done(f"{len(tokens)} captions of all splits have {len(words)} distinct words")
    if source is not None:
        found = _read(source, words)
    else:
        settings = Training(trainer=train, **numbers)  # type: ignore[arg-type]
        found, facts["training"] = _train(
            settings, manifest, split, corpus, allow_leaks, rule, words
        )
    log_done(
        f"storing {len(found.words)} x {found.dim} float32 numbers, "
        f"{found.matrix.nbytes / _MB:.1f} MB, in {out}"
    )
    stored = save_vectors(out, found, facts)
    report = report_on(tokens, stored.index)
    log_done(report.text())
    share = 100 * (1 - report.oov_tokens / max(report.tokens, 1))
    log_done(
        f"{len(stored.words)} words ({stored.dim},), {share:.2f} % of the caption tokens covered, "
        f"in {out}, sha256 {stored.sha256}, {time.monotonic() - started:.1f} s"
    )


def _check_usage(
    ctx: click.Context,
    source: str | None,
    train: str | None,
    corpus: Path | None,
    allow_leaks: bool,
    out: Path,
) -> None:
    if (source is None) == (train is None):
        raise click.UsageError("give either --source or --train")
    given = [n for n in _TRAINING if ctx.get_parameter_source(n) != ParameterSource.DEFAULT]
    if source is not None and given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} is for --train")
    if train == "word2vec" and "buckets" in given:
        raise click.UsageError("--buckets is for --train fasttext")
    if allow_leaks and corpus is None:
        raise click.UsageError("--allow-leaks is for --corpus")
    if out.suffix != STORED_SUFFIX:
        raise click.UsageError(f"--out {out}: the file's name must end in {STORED_SUFFIX}")


def _texts(manifest: Manifest, split: str | None = None) -> dict[str, str]:
    return {
        caption_id: caption
        for entry in manifest.select(split)
        for caption_id, caption in zip(entry.caption_ids, entry.captions, strict=True)
    }


def _read(source: str, words: set[str]) -> WordVectors:
    path = Path(source)
    size = f" ({path.stat().st_size / _MB:.1f} MB)" if path.is_file() else ""
    log_done(f"looking the words of all splits up in {source}{size}")
    return load_vectors(source, words)


def _train(
    settings: Training,
    manifest: Manifest,
    split: str,
    corpus: Path | None,
    allow_leaks: bool,
    rule: Tokenizer,
    words: set[str],
) -> tuple[WordVectors, Mapping[str, Any]]:
    # Here, since gensim takes a second to import and sources need none of it.
    from pipeline.text.vectors.train import train_vectors

    texts = _texts(manifest, split)
    held_out = {k: text for k, text in _texts(manifest).items() if k not in texts}
    lines = list(texts.values()) if corpus is None else read_lines(corpus)
    found = leaks(lines, held_out)
    if corpus is not None and not allow_leaks:
        refuse_leaks(corpus, found)
    leaked = len({line for line, _ in found})
    if leaked:
        what = f"split {split}" if corpus is None else str(corpus)
        log_done(f"{leaked} sentences of {what} equal captions of other splits; this is recorded")
    sentences = Corpus([rule.tokenize(line) for line in lines])
    trained = len(sentences.vocabulary(settings.min_count))
    log_done(
        f"{len(lines)} sentences, {sentences.counts.total()} tokens, {trained} words that occur "
        f"{settings.min_count} times or more; {settings.name} needs "
        f"{settings.memory(trained) / _MB:.1f} MB for its matrices"
    )
    if settings.trainer == "fasttext":
        log_done("fastText shows no progress before its end")
    with progress_of(settings.name, "epoch") as progress:
        vectors = train_vectors(sentences, settings, words, progress)
    return vectors, {
        **settings.to_json(),
        "split": split if corpus is None else None,
        "corpus": None if corpus is None else corpus.name,
        "corpus_sha256": sentences.sha256,
        "sentences": len(lines),
        "tokens": sentences.counts.total(),
        "sentences_equal_to_held_out_captions": leaked,
    }
