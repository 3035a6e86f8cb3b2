"""`pipeline text`: feature shards of captions or phrases."""

import time
from pathlib import Path
from typing import Any

import click

from pipeline.experiments.layout import Layout
from pipeline.store.jobs.options import Storage
from pipeline.store.workers.place import Place
from pipeline.text.encoder_plans import ENCODERS, LEMMAS
from pipeline.text.encoders.token_ids import TOKEN_LAYOUTS
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import VOCABULARY_RULES
from stages.command import COUNT, Command, section
from stages.console import CONSOLE, OUTPUT
from stages.experiment import REQUIRED_DATASET
from stages.options import JSON, group, options_of

# Their object, `pipeline.text.encode.Captions`, is not made here: `--help` needs no scipy.
captions_options = group(
    "captions",
    dict,
    "Captions",
    click.option("--split", help="Encode only the captions of this split.  [default: all]"),
    click.option(
        "--phrases",
        is_flag=True,
        help="Encode the distinct phrases of the dataset's regions instead of captions, and fit "
        "on them.",
    ),
    click.option(
        "--fit-split",
        default="train",
        help="Split on which vocabularies, codebooks and components are fitted.",
    ),
    click.option(
        "--fitted", type=OUTPUT, help="Folder of the fitted files.  [default: OUT.encoder]"
    ),
    click.option(
        "--codebooks",
        type=OUTPUT,
        help="Folder of shared codebooks: loaded from it, or saved to it once fitted.",
    ),
    click.option(
        "--device",
        default="auto",
        help="Device for --pca: a torch device, or auto for the best of this machine.",
    ),
    click.option(
        "--trained-on",
        metavar="NAME[, NAME...]",
        help="Training datasets of the model or the word vectors, for the record.  [default: as "
        "in the model's card or tag]",
    ),
)


_encoder_options = section(
    "Encoder",
    click.option(
        "--vectors",
        help="Word vectors: glove-6b-50d (packaged), a .txt, .vec or .bin, a .safetensors of "
        "`pipeline vectors` or the name of one in data/vectors/DATASET, or "
        "sentence-transformer:MODEL.  [default: glove-6b-50d, if the encoder uses vectors]",
    ),
    click.option(
        "--tokenizer",
        type=click.Choice([*TOKENIZERS, LEMMAS]),
        help="Tokenizer.  [default: that of the encoder]",
    ),
    click.option(
        "--vocabulary", help=f"Words that count: {', '.join(VOCABULARY_RULES)}, min-N or top-N."
    ),
    click.option(
        "--layout",
        type=click.Choice(list(TOKEN_LAYOUTS)),
        help="Token ids: layout, with the marks around the words.",
    ),
    click.option("--max-length", type=COUNT, help="Token ids: length of a row, including marks."),
    click.option(
        "--wordnet",
        type=click.Path(path_type=str),
        help="Lemmas: folder of a WordNet.  [default: rules and GloVe's words]",
    ),
    click.option(
        "--components", type=COUNT, help="Codebooks: components of each mixture.  [default: 30]"
    ),
    click.option(
        "--sample", type=COUNT, help="Codebooks: number of sampled words.  [default: 300000]"
    ),
    click.option("--seed", type=click.IntRange(0), help="Codebooks: seed.  [default: 0]"),
    click.option(
        "--codebook-words",
        type=click.Choice(["source", "training"]),
        help="Codebooks: fit on all words of the vectors, or on those of the training captions.  "
        "[default: source; training with vectors of `pipeline vectors`]",
    ),
    click.option("--pca", type=COUNT, help="Project rows on N principal components."),
    click.option(
        "--tagger",
        help="Tags: textblob, spacy, or perceptron:FILE, NLTK's averaged perceptron as JSON.  "
        "[default: textblob]",
    ),
    click.option(
        "--weights",
        help="open_clip models: PATH of a weights file, or random:SEED.  [default: those of the "
        "tag in the encoder's name]",
    ),
)


@click.command(cls=Command)
@click.option(
    "--encoder",
    required=True,
    metavar="NAME[+NAME...]",
    help=f"Sentence encoder, or several concatenated: {', '.join(ENCODERS)}, "
    "open-clip:MODEL.TAG, or sentence-transformer:MODEL, a folder or an installed package.",
)
@_encoder_options
@REQUIRED_DATASET
@click.option("--out", required=True, type=OUTPUT, help="Output folder of the shards.")
@captions_options
@options_of(Storage, "rows_per_shard", "compress", "add", "update")
@options_of(Place)
@JSON
@click.pass_context
def text(
    ctx: click.Context,
    encoder: str,
    dataset: Path,
    out: Path,
    captions: dict[str, Any],
    storage: Storage,
    place: Place,
    as_json: bool,
    **options: Any,
) -> None:
    """Encode the captions of a prepared dataset into feature shards.

    Encoders are fitted only on captions of the training split. Fitted files are saved in a folder
    next to the shards, so that new sentences can be encoded in the same way. Unknown words are
    counted and logged.

    \b
    Examples:
      pipeline text --encoder mean --dataset data/scenes --out data/text/scenes/mean
      pipeline text --encoder fv-hglmm --pca 1000 --dataset data/flickr8k \\
          --out data/text/flickr8k/fv-hglmm-pca1000
      pipeline text --encoder mean --phrases --dataset data/scenes --out data/text/scenes/phrases
    """
    from pipeline.text.encode import Captions, encode
    from stages.feature_log import log_made

    started = time.monotonic()
    options["vectors"] = Layout(dataset).named_vectors(options["vectors"])
    index = encode(
        dataset, out, encoder=encoder, captions=Captions(**captions), storage=storage, place=place,
        monitor=CONSOLE, **options,
    )  # fmt: skip
    log_made(ctx, out, index, time.monotonic() - started, as_json)
