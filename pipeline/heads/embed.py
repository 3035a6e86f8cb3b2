"""The job of `pipeline embed`: a trained head turns features of a split into an embedding file."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from pipeline.cluster.place import place_of_work
from pipeline.datasets.entries import ImageEntry
from pipeline.datasets.manifest import read_manifest
from pipeline.datasets.splits import split_for
from pipeline.devices import one_core_each
from pipeline.heads import HeadError
from pipeline.heads.base import Head
from pipeline.heads.chunks import CAPTIONS, IMAGES, embed_chunk, split_into_chunks
from pipeline.heads.inputs.averaged import averaged
from pipeline.heads.inputs.feature_rows import Features, Rows
from pipeline.heads.inputs.pairs import Pairs, join_pairs, made_from, with_features
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.heads.workers import EmbeddingJob, embedded_on_workers
from pipeline.progress import QUIET, Monitor, Progress, Stopwatch, no_progress
from pipeline.retrieval.embedding_file import Blocks, EmbeddingsHeader, write_in_blocks
from pipeline.retrieval.embeddings import Embeddings
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
    out : the embedding file; see `pipeline.retrieval.embedding_file`.
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
        What the file holds, with its rows mapped. Images without a caption are left out. A head
        that was fitted on averaged captions has one caption an image; see
        `pipeline.heads.inputs.averaged.averaged`.

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

    source = {
        "dataset": manifest.name,
        "split": split,
        **made_from(dataset, image_set.index, caption_set.index),
        **pretraining_of(trained, image_set, caption_set, manifest.name),
    }
    with monitor.progress(trained.experiment, "row") as progress:

        @contextmanager
        def elsewhere(pairs: Pairs, joined: Pairs) -> Iterator[tuple[Blocks, Blocks]]:
            job = EmbeddingJob(
                head=head_folder,
                images=image_set.folder,
                captions=caption_set.folder,
                image_ids=joined.image_ids,
                caption_ids=joined.caption_ids,
                image_of_caption=joined.image_of_caption,
                average_captions=trained.average_captions,
            )
            with (
                place.executor(monitor) as executor,
                embedded_on_workers(job, out, executor, progress, watch) as sides,
            ):
                yield sides

        def here(pairs: Pairs, joined: Pairs) -> AbstractContextManager[tuple[Blocks, Blocks]]:
            return embedded_here(trained.head, pairs.images, pairs.captions, progress, watch)

        embeddings = embed_split(
            trained,
            kept,
            image_set,
            caption_set,
            out,
            source,
            embedded=elsewhere if place.elsewhere else here,
        )
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
    out: Path,
    provenance: Mapping[str, Any],
    embedded: Callable[[Pairs, Pairs], AbstractContextManager[tuple[Blocks, Blocks]]] | None = None,
) -> Embeddings:
    """Embed images and their captions with a trained head, and write them as one file.

    Parameters
    ----------
    trained : the head.
    entries : the images, in the order of the result.
    images, captions : features of the recipes that the head was fitted on.
    out : the embedding file.
    provenance : more to keep with the embeddings, such as dataset and split.
    embedded : gives the embeddings of both sides of some pairs, which are given twice: as they
        are embedded, and as they were joined, before captions were averaged, if they are. None:
        this process embeds.

    Returns
    -------
    Embeddings
        What the file holds, with its rows mapped.

    Raises
    ------
    HeadError
        Features of other recipes or weights.
    MissingRows, FailedRows
        An image or caption has no features.
    ShardError
        The system refuses to write the file.
    """
    trained.inputs.images.require(images, "image")
    trained.inputs.captions.require(captions, "caption")
    # Every row is taken once, so none is held.
    joined = join_pairs(entries, images, captions, in_memory=0)
    pairs = averaged(joined) if trained.average_captions else joined
    header = EmbeddingsHeader(
        pairs.image_ids,
        pairs.caption_ids,
        pairs.caption_image_ids,
        trained.head.similarity,
        {**trained.provenance, **provenance},
    )
    with (
        embedded_here(trained.head, pairs.images, pairs.captions)
        if embedded is None
        else embedded(pairs, joined)
    ) as (image_blocks, caption_blocks):
        return write_in_blocks(out, header, image_blocks, caption_blocks)


@contextmanager
def embedded_here(
    head: Head,
    images: Rows,
    captions: Rows,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> Iterator[tuple[Blocks, Blocks]]:
    """Give the embeddings of images and of captions, made while they are taken, images first.

    This process makes a chunk at a time on each core, and few that nobody has taken yet.

    Parameters
    ----------
    head : fitted.
    images, captions : features of both sides.
    progress : called with rows done, rows in all, and 0.
    watch : the seconds of reading and of computing are added to it.
    """
    watch = watch or Stopwatch()
    sides = {IMAGES: images, CAPTIONS: captions}
    chunks = split_into_chunks(len(images), len(captions))
    total, done = len(images) + len(captions), 0
    cores = len(os.sched_getaffinity(0))

    def made(side: str) -> Blocks:
        nonlocal done
        waiting: deque[Future[Features]] = deque()
        of_side = [chunk for chunk in chunks if chunk.side == side]
        for number, chunk in enumerate(of_side, 1):
            waiting.append(pool.submit(embed_chunk, head, sides[side], chunk, watch))
            while waiting and (number == len(of_side) or len(waiting) > 2 * cores):
                rows = waiting.popleft().result()
                done += len(rows)
                progress(done, total, 0)
                yield rows

    with one_core_each(), ThreadPoolExecutor(cores) as pool:
        yield made(IMAGES), made(CAPTIONS)
