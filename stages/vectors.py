"""`pipeline vectors`: a file of word vectors for a dataset's words, loaded or trained."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors.settings import Training
from stages.command import PATH, Command, flag, option, section
from stages.console import CONSOLE, OUTPUT, elapsed, log_done
from stages.experiment import REQUIRED_DATASET
from stages.options import option_of

_SETTINGS = {field.name: field for field in fields(Training) if field.name != "trainer"}
_TRAINING_ONLY = ("split", "corpus", "allow_leaks", *_SETTINGS)
_settings_options = section("Options", *(option_of(Training, name) for name in _SETTINGS))


@click.command(cls=Command)
@option(
    "--source",
    "Vectors to load: glove-6b-50d (packaged), a .txt (GloVe or word2vec text), a .vec or .bin "
    "(fastText or word2vec), a .safetensors of `pipeline vectors`, or sentence-transformer:MODEL.",
)
@option("--train", "Train vectors instead.", click.Choice(["word2vec", "fasttext"]))
@REQUIRED_DATASET
@option("--out", "Output file, .safetensors.", OUTPUT, required=True)
@option(
    "--tokenizer",
    "Tokenizer of captions and corpus.",
    click.Choice(list(TOKENIZERS)),
    default="treebank",
)
@option("--split", "Training: split whose captions are used.", default="train")
@option(
    "--corpus",
    "Training: UTF-8 file with one sentence per line, instead of the captions of the split.",
    PATH,
)
@flag("--allow-leaks", "Training: allow a corpus that contains captions of other splits.")
@_settings_options
@click.pass_context
def vectors(
    ctx: click.Context,
    source: str | None,
    train: str | None,
    dataset: Path,
    out: Path,
    **options: Any,
) -> None:
    """Store word vectors for the words of a dataset, loaded from a source or trained.

    Vectors from a source do not depend on the dataset, so the words of all splits are looked up.
    Training uses the captions of one split, or a corpus without captions of the other splits; every
    word of the dataset that it learns is stored.

    \b
    Examples:
      pipeline vectors --source glove.6B.300d.txt --dataset data/flickr8k \\
          --out data/vectors/flickr8k/glove-6b-300d.safetensors
      pipeline vectors --train word2vec --dataset data/flickr8k --split train --dim 500 --seed 0 \\
          --out data/vectors/flickr8k/word2vec-500d.safetensors
    """
    _refuse_training_options(ctx, source, train)
    if (source is None) == (train is None):
        raise click.UsageError("pass either --source or --train")
    settings = {name: options.pop(name) for name in _SETTINGS}
    training = Training(trainer=train, **settings) if train else None  # type: ignore[arg-type]
    from pipeline.text.vectors.store import store_vectors

    stored = store_vectors(
        dataset, out, source=source, training=training, **options, monitor=CONSOLE
    )
    log_done(
        f"{len(stored.vectors.words)} words ({stored.vectors.dim},), "
        f"{100 * stored.coverage:.2f} % of the caption tokens covered, in {out}, sha256 "
        f"{stored.vectors.sha256}, {elapsed():.1f} s"
    )


def _refuse_training_options(ctx: click.Context, source: str | None, train: str | None) -> None:
    """Raise if a training option is set without --train; the job checks all other combinations."""
    given = [n for n in _TRAINING_ONLY if ctx.get_parameter_source(n) != ParameterSource.DEFAULT]
    if source is not None and train is None and given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} requires --train")
    if train == "word2vec" and "buckets" in given:
        raise click.UsageError("--buckets requires --train fasttext")
