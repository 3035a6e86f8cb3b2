"""`pipeline text`: the captions of a dataset become feature shards."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.progress import Stopwatch
from pipeline.shards.build.feature_build import ShardBuild
from pipeline.shards.build.locking import WORK_FOLDER
from pipeline.summary import write_summary
from pipeline.text.catalogue import ENCODERS, LEMMAS, EncoderPlan, plan_encoder
from pipeline.text.encode import caption_header, changed_rows, encode_captions
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.token_ids import SEQUENCE_LAYOUTS
from pipeline.text.fitted import PROJECTION_FILE, Fitting, fit_components, fit_parts
from pipeline.text.pca.fit import fit_disk, fit_memory
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vocabulary import VOCABULARY_RULES
from pipeline.text.workers import encode_on_workers
from stages.cluster import cluster_options
from stages.console import CONSOLE, OUTPUT, log_done, log_settings, progress_of

_MB = 1e6


def _plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
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
        click.option("--max-length", type=click.IntRange(1), help="Of a sequence, with its marks."),
        click.option(
            "--layout", type=click.Choice(list(SEQUENCE_LAYOUTS)), help="Marks of a sequence."
        ),
        click.option(
            "--vocabulary",
            help=f"Words that count: {', '.join(VOCABULARY_RULES)}, min-N or top-N.",
        ),
        click.option(
            "--policy",
            type=click.Choice([*TOKENIZERS, LEMMAS]),
            help="How captions are split into words.  [default: the encoder's]",
        ),
        click.option(
            "--vectors",
            help="Word vectors: glove-6b-50d (packaged), a .txt, .vec or .bin, or a .safetensors "
            "of `pipeline vectors`.  [default: glove-6b-50d, where the encoder takes any]",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "--encoder",
    required=True,
    metavar="NAME[+NAME...]",
    help=f"Sentence encoder, or several side by side: {', '.join(ENCODERS)}.",
)
@_plan_options
@click.option("--dataset", required=True, type=click.Path(path_type=Path), help="Prepared dataset.")
@click.option("--out", required=True, type=OUTPUT, help="Folder of the shards.")
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
    "--rows-per-shard", type=click.IntRange(1), help="[default: what fits in 1 GiB, at most 65536]"
)
@cluster_options
def text(
    encoder: str,
    dataset: Path,
    out: Path,
    split: str | None,
    fit_split: str,
    fitted: Path | None,
    codebooks: Path | None,
    device: str,
    rows_per_shard: int | None,
    workers: int | None,
    scheduler: str | None,
    resources: dict[str, float],
    summary: Path | None,
    **options: Any,
) -> None:
    """Turn the captions of a prepared dataset into feature shards.

    What an encoder is fitted to are captions of the training split alone; the fitted parts stay
    in a folder beside the shards, so that new sentences can be encoded alike. Words that the
    encoder does not know are counted and reported.

    \b
    Examples:
      pipeline text --encoder mean --dataset data/scenes --out data/text/scenes/mean
      pipeline text --encoder fv-hglmm --pca 1000 --dataset data/flickr8k \\
          --out data/text/flickr8k/fv-hglmm-pca1000
    """
    plan = plan_encoder(encoder, **options)
    place = place_of_work(workers, scheduler, resources)
    fitted = fitted or out.with_name(f"{out.name}.encoder")
    log_settings(
        "text", encoder=encoder, dataset=dataset, out=out, split=split, fit_split=fit_split,
        fitted=fitted, codebooks=codebooks, device=device, workers=workers, scheduler=scheduler,
        **options,
    )  # fmt: skip
    manifest = read_manifest(dataset)
    text_of = _texts(manifest, split)
    training = list(_texts(manifest, fit_split).values())
    started = time.monotonic()
    fitting = Fitting(training, manifest.name, fit_split, codebooks, log_done)
    inputs = list(text_of.values())
    made = fit_parts(plan, fitted, fitting, inputs)
    made = _with_components(plan, fitted, made, training, device)
    header = caption_header(made, manifest.name)
    watch = Stopwatch()
    with ShardBuild(out, header, list(text_of), rows_per_shard, inputs=inputs) as build:
        texts = [text_of[one] for one in build.ids]
        _find_rows(build, out, made, texts)
        computed = len(texts) - build.rows_done
        if place.elsewhere and build.pending():
            with place.executor(CONSOLE) as executor, progress_of(made.name, "caption") as progress:
                index = encode_on_workers(build, fitted, texts, executor, progress, watch)
        else:
            with progress_of(made.name, "caption") as progress:
                index = encode_captions(build, made, texts, progress, watch)
        ids = build.ids
    _report(made, texts, ids)
    seconds = time.monotonic() - started
    if summary:
        facts = index.metadata
        write_summary(summary, "text", out, facts, computed, seconds, watch, place.name())
    log_done(
        f"{index.rows} rows ({made.dim},) in {len(index.shards)} shards in {out}, recipe "
        f"{header.recipe_hash}, {seconds:.1f} s"
    )


def _texts(manifest: Manifest, split: str | None) -> dict[str, str]:
    return {
        one: caption
        for entry in manifest.select(split)
        for one, caption in zip(entry.caption_ids, entry.captions, strict=True)
    }


def _with_components(
    plan: EncoderPlan, fitted: Path, encoder: CaptionEncoder, training: list[str], device: str
) -> CaptionEncoder:
    """Announce sizes, then fit the principal components that are asked for."""
    if plan.pca is not None and not (fitted / PROJECTION_FILE).exists():
        log_done(
            f"{plan.pca} principal components of {len(training)} rows of {encoder.dim} numbers: "
            f"at most {fit_memory(encoder.dim, plan.pca) / _MB:.0f} MB of memory and "
            f"{fit_disk(encoder.dim) / _MB:.0f} MB on the disk, however many captions"
        )
    work = fitted.absolute().parent / WORK_FOLDER / f"{fitted.name}-pca"
    with progress_of("principal components", "caption") as progress:
        return fit_components(plan, fitted, encoder, training, work, device, progress)


def _find_rows(build: ShardBuild, out: Path, encoder: CaptionEncoder, texts: list[str]) -> None:
    """Say what is there and what is needed, and have rows of changed captions made again."""
    for found in build.damaged:
        log_done(f"will be made again: {found}")
    for folder in build.other_work():
        log_done(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
    if changed := changed_rows(build, texts):
        log_done(f"{len(changed)} captions have changed; their rows are made again")
    build.redo(changed)
    log_done(
        f"{len(texts)} rows of {encoder.name}, ({encoder.dim},) float32: "
        f"{len(texts) * encoder.dim * 4 / _MB:.1f} MB in {build.plan.shards} shards and "
        f"{encoder.memory / _MB:.0f} MB of memory; {build.rows_done} rows are done"
    )


def _report(encoder: CaptionEncoder, texts: list[str], ids: Sequence[str]) -> None:
    for name, report in encoder.reports(texts).items():
        log_done(f"{name}: {report.text()}")
        for position in report.unknown_captions[:5]:
            log_done(f"no known word: {ids[position]}")
