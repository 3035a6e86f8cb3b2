"""The job of `pipeline text`: the captions or phrases of a dataset become feature shards."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cluster.place import place_of_work
from pipeline.datasets.manifest import read_manifest
from pipeline.hashing import sha256_of_texts
from pipeline.progress import QUIET, Monitor, Stopwatch
from pipeline.shards.index import FeatureIndex
from pipeline.shards.resume.feature_build import ShardBuild
from pipeline.summary import write_summary
from pipeline.text.encoder_plans import plan_encoder
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitting import Fitting, fit_encoder
from pipeline.text.rows import caption_header, changed_rows, encode_captions
from pipeline.text.unique_phrases import unique_phrases
from pipeline.text.workers import encode_on_workers

_MB = 1e6
_SHOWN = 5  # captions without a known word that are named


def encode(
    dataset: str | Path,
    out: str | Path,
    *,
    encoder: str,
    phrases: bool = False,
    split: str | None = None,
    fit_split: str = "train",
    fitted: str | Path | None = None,
    codebooks: str | Path | None = None,
    device: str = "cpu",
    trained_on: str | None = None,
    rows_per_shard: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
    **options: Any,
) -> FeatureIndex:
    """Encode the captions of a dataset, or the distinct phrases of its regions, into shards.

    Vocabularies, codebooks and principal components are fitted to the captions of one split and
    stay in a folder beside the shards. What is there from an earlier call is taken: fitted files,
    and the finished rows of captions that have not changed. The same call gives the same bytes,
    interrupted or not, on any number of workers.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : folder of the shards; its row ids are caption ids, or `phrase_key` of phrases.
    encoder : names of `pipeline.text.encoder_plans.ENCODERS`, joined by "+" for a concatenation.
    phrases : encode, and fit to, the distinct phrases of the regions in place of captions.
    split : only the captions of this split; None takes all.
    fit_split : split whose captions vocabularies, codebooks and components are fitted to.
    fitted : folder of the fitted files; None: `encoder_folder(out)`.
    codebooks : folder of codebooks to share: taken from there, or put there once fitted.
    device : where the products of principal components are taken: "cpu", or a device of torch.
    trained_on : datasets that a model or the word vectors were trained on, for the shards' header;
        names separated by commas. None: as the model's card or tag says. It changes no feature.
    rows_per_shard : None: as `out` has it, or what makes shards of up to 1 GiB.
    workers, scheduler, resources : where the work is done; see `place_of_work`.
    summary : JSON file to write counts, rates and seconds to.
    monitor : gets log lines and progress.
    options : of the encoder, such as `vectors` or `pca`; see `plan_encoder`.

    Returns
    -------
    FeatureIndex
        Of the finished shards.

    Raises
    ------
    WrongUsage
        Arguments that contradict each other.
    EncoderError
        No encoder has this name or takes these options, or `fitted` holds another one.
    PipelineError
        The dataset, word vectors or fitted files cannot be read, or the shards not be written.
    """
    started = time.monotonic()
    out = Path(out)
    folder = encoder_folder(out) if fitted is None else Path(fitted)
    plan = plan_encoder(encoder, **options)
    place = place_of_work(workers, scheduler, resources)
    manifest = read_manifest(Path(dataset))
    texts_of = partial(unique_phrases, dataset) if phrases else manifest.captions
    captions = texts_of(split)
    fitting = Fitting(
        texts_of(fit_split).texts,
        manifest.name,
        fit_split,
        None if codebooks is None else Path(codebooks),
        device,
        monitor,
    )
    made = fit_encoder(plan, folder, fitting, captions.texts)
    header = caption_header(made, manifest.name, trained_on)
    watch = Stopwatch()
    inputs = sha256_of_texts(captions.texts)
    with ShardBuild(out, header, captions.ids, rows_per_shard, inputs=inputs) as build:
        texts = build.in_order(captions.texts)
        _find_rows(build, out, made, texts, monitor)
        computed = len(texts) - build.rows_done
        if place.elsewhere and build.pending():
            with (
                place.executor(monitor) as executor,
                monitor.progress(made.name, "caption") as progress,
            ):
                index = encode_on_workers(build, folder, texts, executor, progress, watch)
        else:
            with monitor.progress(made.name, "caption") as progress:
                index = encode_captions(build, made, texts, progress, watch)
        ids = build.ids
    _report_unknown(made, texts, ids, monitor)
    if summary is not None:
        seconds = time.monotonic() - started
        write_summary(
            Path(summary), "text", out, index.metadata, computed, seconds, watch, place.name()
        )
    return index


def encoder_folder(out: str | Path) -> Path:
    """Return the folder of what is fitted for the shards in `out`, unless another is asked for."""
    out = Path(out)
    return out.with_name(f"{out.name}.encoder")


def _find_rows(
    build: ShardBuild, out: Path, encoder: CaptionEncoder, texts: Sequence[str], monitor: Monitor
) -> None:
    """Log rows done and memory needed; have the rows of changed captions made again."""
    for found in build.damaged:
        monitor.log(f"will be made again: {found}")
    for folder in build.other_work():
        monitor.log(f"unfinished work of {out}, other settings: {folder}; remove it if not wanted")
    if changed := changed_rows(build, texts):
        monitor.log(f"{len(changed)} captions have changed; their rows are made again")
    build.redo(changed)
    monitor.log(
        f"{len(texts)} rows of {encoder.name}, ({encoder.dim},) float32: "
        f"{len(texts) * encoder.dim * 4 / _MB:.1f} MB in {build.plan.shards} shards and "
        f"{encoder.memory / _MB:.0f} MB of memory; {build.rows_done} rows are done"
    )


def _report_unknown(
    encoder: CaptionEncoder, texts: Sequence[str], ids: Sequence[str], monitor: Monitor
) -> None:
    """Log how many words the encoder does not know, and some captions without a known word."""
    for name, report in encoder.reports(texts).items():
        monitor.log(f"{name}: {report.text()}")
        for position in report.unknown_captions[:_SHOWN]:
            monitor.log(f"no known word: {ids[position]}")
