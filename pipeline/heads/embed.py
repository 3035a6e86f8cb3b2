"""The job of `pipeline embed`: a trained head turns features of a split into an embedding file."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cluster.place import place_of_work
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.devices import one_core_each
from pipeline.heads import HeadError
from pipeline.heads.base import Head
from pipeline.heads.chunks import CAPTIONS, IMAGES, embed_chunk, split_into_chunks
from pipeline.heads.data.averaged import averaged
from pipeline.heads.data.pairs import Pairs, join_pairs, made_from, with_features
from pipeline.heads.data.rows import Features, Rows
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.workers import EmbeddingJob, embed_on_workers
from pipeline.progress import QUIET, Monitor, Progress, Stopwatch, no_progress
from pipeline.retrieval.embeddings import Embeddings, write_embeddings
from pipeline.shards.feature_set import FeatureSet
from pipeline.summary import write_summary
from pipeline.text.families import seen_of


def embed(
    dataset: str | Path,
    out: str | Path,
    *,
    head: str | Path,
    images: str | Path,
    captions: str | Path,
    split: str | None = None,
    experiment: str | None = None,
    leave_out_failed: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    summary: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> Embeddings:
    """Embed the images and captions of a split with a trained head, and write them as one file.

    The bytes of the file do not depend on where the work is done. What workers have embedded
    lies in a work folder beside `out` until the file is written; the same call goes on from it.

    Parameters
    ----------
    dataset : folder of a prepared dataset.
    out : the embedding file; see `pipeline.retrieval.embeddings`.
    head : folder of the trained head.
    images, captions : folders of the features that the head was fitted on.
    split : of the dataset, which is embedded; None: "test", or by the other usual names of
        `pipeline.datasets.splits.USUAL_NAMES`.
    experiment : refuse the head of any other experiment; None: take whatever head there is.
    leave_out_failed : leave out images whose features failed; otherwise they are refused.
    workers : processes of this machine that do the work; None: this process.
    scheduler : address of the Dask scheduler whose workers do the work; None: no such workers.
    resources : what a task needs of a scheduler's worker, such as {"GPU": 1}.
    summary : JSON file of counts, rates and seconds.
    monitor : gets log lines, and progress in rows.

    Returns
    -------
    Embeddings
        What the file holds. Images without a caption are left out. A head that was fitted on
        averaged captions has one caption an image; see `pipeline.heads.data.averaged.averaged`.

    Raises
    ------
    WrongUsage
        Both `workers` and `scheduler` are given, or `resources` without a `scheduler`.
    HeadError
        The head is missing, damaged or another experiment's, or was fitted on other features.
    MissingRows, FailedRows
        An image or caption has no features.
    ShardError
        Workers do not see the files, or another process is writing the same output.
    """
    out, head_folder = Path(out), Path(head)
    place = place_of_work(workers, scheduler, resources)
    started = time.monotonic()
    watch = Stopwatch()
    manifest = read_manifest(Path(dataset))
    split = split_for("test", manifest, split)
    entries = manifest.select(split)
    trained = load_head(head_folder)
    if experiment is not None and trained.experiment != experiment:
        raise HeadError(
            f"{head_folder} holds the head of experiment {trained.experiment!r}, not of "
            f"{experiment!r}; give the right --head or --experiment"
        )
    image_set, caption_set = FeatureSet(Path(images)), FeatureSet(Path(captions))
    kept = with_features(entries, image_set) if leave_out_failed else entries

    def embed_pairs(pairs: Pairs, joined: Pairs) -> tuple[Features, Features]:
        with monitor.progress(trained.experiment, "row") as progress:
            if not place.elsewhere:
                return embed_here(trained.head, pairs.images, pairs.captions, progress, watch)
            job = EmbeddingJob(
                head=head_folder,
                images=image_set.folder,
                captions=caption_set.folder,
                image_ids=joined.image_ids,
                caption_ids=joined.caption_ids,
                image_of_caption=joined.image_of_caption,
                average_captions=trained.average_captions,
            )
            with place.executor(monitor) as executor:
                return embed_on_workers(job, out, executor, progress, watch)

    source = {
        "dataset": manifest.name,
        "split": split,
        **made_from(dataset, image_set.index, caption_set.index),
        **pretraining_of(trained, image_set, caption_set, manifest.name),
    }
    embeddings = embed_split(trained, kept, image_set, caption_set, source, embed_pairs)
    write_embeddings(out, embeddings)
    if failed := len(entries) - len(kept):
        monitor.log(f"{failed} images without features are left out")
    if without_caption := len(kept) - len(embeddings.image_ids):
        monitor.log(f"{without_caption} images without a caption are left out")
    if summary is not None:
        rows = len(embeddings.image_ids) + len(embeddings.caption_ids)
        metadata = {"rows": rows, "images": len(embeddings.image_ids)}
        seconds = time.monotonic() - started
        write_summary(Path(summary), "embed", out, metadata, rows, seconds, watch, place.name())
    return embeddings


def pretraining_of(
    trained: TrainedHead, images: FeatureSet, captions: FeatureSet, dataset: str
) -> dict[str, Any]:
    """Return what is known of the training of the encoders before a head, for its embeddings.

    Parameters
    ----------
    trained : the head; its word vectors count too.
    images, captions : features that it embeds.
    dataset : name of the dataset that they are of.

    Returns
    -------
    dict
        `pretraining`: by "images", "captions" and "word vectors" the names of datasets that were
        learnt from; `has_seen`: those among them that share pictures or captions with the dataset.
        Sides without any are left out, and so is a key without sides.
    """
    said = {
        "images": images.index.header.trained_on,
        "captions": captions.index.header.trained_on,
        "word vectors": (trained.word_vectors or {}).get("trained_on", ()),
    }
    both = {
        "pretraining": {side: list(names) for side, names in said.items() if names},
        "has_seen": {s: seen for s, names in said.items() if (seen := seen_of(dataset, names))},
    }
    return {key: sides for key, sides in both.items() if sides}


def embed_split(
    trained: TrainedHead,
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet,
    provenance: Mapping[str, Any],
    embed_pairs: Callable[[Pairs, Pairs], tuple[Features, Features]] | None = None,
) -> Embeddings:
    """Embed images and their captions with a trained head; no file is written.

    Parameters
    ----------
    trained : the head.
    entries : the images, in the order of the result.
    images, captions : features of the recipes that the head was fitted on.
    provenance : more to keep with the embeddings, such as dataset and split.
    embed_pairs : returns the embeddings of both sides of some pairs, which are given twice: as
        they are embedded, and as they were joined, before captions were averaged, if they are.
        None: this process embeds.

    Raises
    ------
    HeadError
        Features of other recipes or weights.
    MissingRows, FailedRows
        An image or caption has no features.
    """
    trained.inputs.images.require(images, "image")
    trained.inputs.captions.require(captions, "caption")
    # Every row is taken once, so none is held.
    joined = join_pairs(entries, images, captions, in_memory=0)
    pairs = averaged(joined) if trained.average_captions else joined
    if embed_pairs is None:
        image_rows, caption_rows = embed_here(trained.head, pairs.images, pairs.captions)
    else:
        image_rows, caption_rows = embed_pairs(pairs, joined)
    return Embeddings(
        pairs.image_ids,
        image_rows,
        pairs.caption_ids,
        pairs.caption_image_ids,
        caption_rows,
        trained.head.similarity,
        {**trained.provenance, **provenance},
    )


def embed_here(
    head: Head,
    images: Rows,
    captions: Rows,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> tuple[Features, Features]:
    """Embed images and captions in this process, with a chunk at a time on each core.

    Parameters
    ----------
    head : fitted.
    images, captions : features of both sides.
    progress : called with rows done, rows in all, and 0.
    watch : the seconds of reading and of computing are added to it.

    Returns
    -------
    images, captions : (n, dim) or (n, parts, dim) float32 of each side.
    """
    watch = watch or Stopwatch()
    sides = {IMAGES: images, CAPTIONS: captions}
    chunks = split_into_chunks(len(images), len(captions))
    total, done = len(images) + len(captions), 0
    found: dict[str, Features] = {}
    with one_core_each(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        embedded = pool.map(lambda c: embed_chunk(head, sides[c.side], c, watch), chunks)
        for chunk, rows in zip(chunks, embedded, strict=True):
            if chunk.side not in found:
                shape = (len(sides[chunk.side]), *rows.shape[1:])
                found[chunk.side] = np.empty(shape, np.float32)
            found[chunk.side][chunk.span.start : chunk.span.stop] = rows
            done += len(rows)
            progress(done, total, 0)
    return found[IMAGES], found[CAPTIONS]
