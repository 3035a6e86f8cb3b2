"""`pipeline text`: feature shards of captions or phrases."""

from pathlib import Path
from typing import Any

import click

from pipeline.store.jobs.options import Storage
from pipeline.store.workers.place import Place
from pipeline.text.captions import Captions
from pipeline.text.encoders.registry import encoders, settable_fields
from stages.command import Command, option, section
from stages.console import CONSOLE, OUTPUT_OR_URL
from stages.experiment import REQUIRED_DATASET, layout_of
from stages.options import JSON, option_like, options_of

_encoder_options = section("Encoder", *map(option_like, settable_fields().values()))


@click.command(cls=Command)
@option(
    "--encoder",
    f"Sentence encoder, or several concatenated: {', '.join(encoders())}, open-clip:MODEL.TAG, "
    "transformers:ID, or sentence-transformer:MODEL; ID and MODEL are a folder or a name on the "
    "hub, MODEL may also be a package.",
    required=True,
    metavar="NAME[+NAME...]",
)
@_encoder_options
@REQUIRED_DATASET
@option("--out", "Output folder of the shards, or its URL.", OUTPUT_OR_URL, required=True)
@options_of(Captions)
@options_of(Storage, "rows_per_shard", "compress", "add", "update")
@options_of(Place)
@JSON
@click.pass_context
def text(
    ctx: click.Context,
    encoder: str,
    dataset: Path,
    out: Path,
    captions: Captions,
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
    from pipeline.text.encode import encode
    from stages.feature_log import log_made

    options["vectors"] = layout_of(dataset, "").named_vectors(options["vectors"])
    index = encode(
        dataset, out, encoder=encoder, captions=captions, storage=storage, place=place,
        monitor=CONSOLE, **options,
    )  # fmt: skip
    log_made(ctx, out, index, as_json)
