"""`pipeline text`: the captions or phrases of a dataset become feature shards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pipeline.experiments.layout import Layout
from pipeline.text.encoder_plans import ENCODERS, LEMMAS
from pipeline.text.encoders.token_ids import TOKEN_LAYOUTS
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import VOCABULARY_RULES
from stages.cluster import cluster_options
from stages.console import CONSOLE, OUTPUT, log_done, log_settings


def _plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--weights",
            help="Models of open_clip: PATH of a file, or random:SEED.  [default: those of the tag "
            "in the encoder's name]",
        ),
        click.option(
            "--tagger",
            help="Tags: textblob, or perceptron:FILE, NLTK's averaged perceptron as JSON.  "
            "[default: textblob]",
        ),
        click.option("--pca", type=click.IntRange(1), help="Keep N principal components."),
        click.option(
            "--codebook-words",
            type=click.Choice(["source", "training"]),
            help="Codebooks: fit to all words of the vectors, or to those of the training "
            "captions.  [default: source; training with vectors of `pipeline vectors`]",
        ),
        click.option("--seed", type=click.IntRange(0), help="Of codebooks.  [default: 0]"),
        click.option(
            "--sample", type=click.IntRange(1), help="Words of a codebook.  [default: 300000]"
        ),
        click.option(
            "--components", type=click.IntRange(1), help="Of each mixture.  [default: 30]"
        ),
        click.option(
            "--wordnet",
            type=click.Path(path_type=str),
            help="Lemmas: folder of a WordNet.  [default: rules and GloVe's words]",
        ),
        click.option(
            "--max-length", type=click.IntRange(1), help="Ids: length of a row, with marks."
        ),
        click.option(
            "--layout",
            type=click.Choice(list(TOKEN_LAYOUTS)),
            help="Token ids: marks around the words.",
        ),
        click.option(
            "--vocabulary",
            help=f"Words that count: {', '.join(VOCABULARY_RULES)}, min-N or top-N.",
        ),
        click.option(
            "--tokenizer",
            type=click.Choice([*TOKENIZERS, LEMMAS]),
            help="How captions are split into words.  [default: the encoder's]",
        ),
        click.option(
            "--vectors",
            help="Word vectors: glove-6b-50d (packaged), a .txt, .vec or .bin, a .safetensors of "
            "`pipeline vectors` or the name of one in data/vectors/DATASET, or "
            "sentence-transformer:MODEL.  [default: glove-6b-50d, where the encoder takes any]",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "--encoder",
    required=True,
    metavar="NAME[+NAME...]",
    help=f"Sentence encoder, or several side by side: {', '.join(ENCODERS)}, "
    "open-clip:MODEL.TAG, or sentence-transformer:MODEL, a folder or an installed package.",
)
@_plan_options
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the shards.")
@click.option(
    "--phrases",
    is_flag=True,
    help="Encode, and fit to, the distinct phrases of the dataset's regions, not its captions.",
)
@click.option("--split", help="Only the captions of this split.  [default: all]")
@click.option(
    "--fit-split",
    default="train",
    show_default=True,
    help="Split whose captions vocabularies, codebooks and components are fitted to.",
)
@click.option(
    "--fitted", type=OUTPUT, help="Folder of what is fitted.  [default: OUT with .encoder added]"
)
@click.option(
    "--codebooks",
    type=OUTPUT,
    help="Folder of codebooks to share: taken from there, or put there once fitted.",
)
@click.option(
    "--device", default="cpu", show_default=True, help="Where --pca multiplies, such as cuda."
)
@click.option(
    "--trained-on",
    metavar="NAME[, NAME...]",
    help="Datasets that the model or the word vectors were trained on, for the record.  [default: "
    "as a model's card or tag says]",
)
@click.option(
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
@cluster_options
def text(
    encoder: str,
    dataset: Path,
    out: Path,
    phrases: bool,
    split: str | None,
    fit_split: str,
    fitted: Path | None,
    codebooks: Path | None,
    device: str,
    trained_on: str | None,
    rows_per_shard: int | None,
    workers: int | None,
    scheduler: str | None,
    resources: dict[str, float],
    summary: Path | None,
    **options: Any,
) -> None:
    """Turn the captions of a prepared dataset into feature shards.

    Encoders are fitted to captions of the training split alone; what was fitted stays in a folder
    beside the shards, so that new sentences can be encoded alike. Words that the encoder does not
    know are counted and reported.

    \b
    Examples:
      pipeline text --encoder mean --dataset data/scenes --out data/text/scenes/mean
      pipeline text --encoder fv-hglmm --pca 1000 --dataset data/flickr8k \\
          --out data/text/flickr8k/fv-hglmm-pca1000
      pipeline text --encoder mean --phrases --dataset data/scenes --out data/text/scenes/phrases
    """
    # Here, since `--help` needs neither h5py nor scipy.
    from pipeline.text.encode import encode, encoder_folder

    started = time.monotonic()
    options["vectors"] = Layout(dataset).named_vectors(options["vectors"])
    fitted = fitted or encoder_folder(out)
    log_settings(
        "text", encoder=encoder, dataset=dataset, out=out, phrases=phrases, split=split,
        fit_split=fit_split,
        fitted=fitted, codebooks=codebooks, device=device, trained_on=trained_on, workers=workers,
        scheduler=scheduler,
        **options,
    )  # fmt: skip
    index = encode(
        dataset,
        out,
        encoder=encoder,
        phrases=phrases,
        split=split,
        fit_split=fit_split,
        fitted=fitted,
        codebooks=codebooks,
        device=device,
        trained_on=trained_on,
        rows_per_shard=rows_per_shard,
        workers=workers,
        scheduler=scheduler,
        resources=resources,
        summary=summary,
        monitor=CONSOLE,
        **options,
    )
    log_done(
        f"{index.rows} rows {index.header.row_shape} in {len(index.shards)} shards in {out}, "
        f"recipe {index.header.recipe_hash}, {time.monotonic() - started:.1f} s"
    )
