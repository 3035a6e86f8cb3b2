"""`pipeline text`: the captions of a dataset become feature shards."""

import time
from pathlib import Path

import click

from pipeline.datasets.manifest import read_manifest
from pipeline.shards.build import ShardBuild
from pipeline.text.features import caption_header, changed_rows, encode_captions
from pipeline.text.means import MeanVectors
from pipeline.text.policies import POLICIES
from pipeline.text.vectors import load_vectors
from stages.console import OUTPUT, log_done, log_settings, progress_of


@click.command()
@click.option("--encoder", type=click.Choice(["mean"]), required=True, help="Sentence encoder.")
@click.option(
    "--vectors",
    default="glove-6b-50d",
    show_default=True,
    help="Word vectors: glove-6b-50d (packaged), a .txt in GloVe's or a .bin in word2vec's format.",
)
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the shards.")
@click.option("--split", help="Only the captions of this split.  [default: all]")
@click.option(
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
def text(
    encoder: str,
    vectors: str,
    dataset: Path,
    out: Path,
    split: str | None,
    rows_per_shard: int | None,
) -> None:
    """Turn the captions of a prepared dataset into feature shards.

    Words without a vector are left out of a caption's mean, counted and reported; a caption
    with no known word gets a zero vector.

    \b
    Example:
      pipeline text --encoder mean --vectors glove-6b-50d --dataset data/scenes \\
          --out data/text/scenes/mean-glove-6b-50d
    """
    log_settings("text", encoder=encoder, vectors=vectors, dataset=dataset, out=out, split=split)
    manifest = read_manifest(dataset)
    entries = manifest.select(split)
    text_of = {
        one: caption
        for entry in entries
        for one, caption in zip(entry.caption_ids, entry.captions, strict=True)
    }
    wanted = {
        word for caption in text_of.values() for word in POLICIES["treebank"].tokenize(caption)
    }
    mean = MeanVectors(load_vectors(vectors, wanted))
    header = caption_header(mean, manifest.name)
    started = time.monotonic()
    inputs = list(text_of.values())
    with ShardBuild(out, header, list(text_of), rows_per_shard, inputs=inputs) as build:
        texts = [text_of[one] for one in build.ids]
        for found in build.damaged:
            log_done(f"will be made again: {found}")
        for folder in build.other_work():
            log_done(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
        if changed := changed_rows(build, texts):
            log_done(f"{len(changed)} captions have changed; their rows are made again")
        build.redo(changed)
        with progress_of(mean.name, "caption") as progress:
            index = encode_captions(build, mean, texts, progress)
        ids = build.ids
    report = mean.report(texts)
    log_done(report.text())
    for position in report.unknown_captions[:5]:
        log_done(f"no known word: {ids[position]}")
    log_done(
        f"{index.rows} rows ({mean.dim},) in {len(index.shards)} shards in {out}, recipe "
        f"{header.recipe_hash}, {time.monotonic() - started:.1f} s"
    )
