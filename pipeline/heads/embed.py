"""The job of `pipeline embed`: a trained head turns features into an embedding file."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.entries import ImageEntry, PackedEntries
from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.datasets.splits import ALL, split_for, splits_of
from pipeline.heads import HeadError
from pipeline.heads.copied_rows import copied_rows, earlier_embeddings
from pipeline.heads.embedding_source import CHUNK_ROWS, EmbeddingSource, Side
from pipeline.heads.inputs.averaged import averaged
from pipeline.heads.inputs.feature_rows import FeatureRows, Features, Rows
from pipeline.heads.inputs.pairs import (
    Pairs,
    first_captions_of,
    join_pairs,
    made_from,
    with_features,
)
from pipeline.heads.trained_head import TrainedHead, load_head
from pipeline.retrieval.csls import Reference
from pipeline.retrieval.embedding_file import Blocks, EmbeddingsHeader, write_in_blocks
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.quantised.codes import (
    Quantiser,
    Store,
    StoreError,
    quantiser_for,
    require_store,
    shortened,
)
from pipeline.store.builder.locking import WORK_FOLDER, only_writer, work_folders
from pipeline.store.files import OutputError
from pipeline.store.jobs.make_features import make_features
from pipeline.store.jobs.options import Selection, Storage
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.mirror import sent_when_written
from pipeline.store.objects.urls import absolute, url_of
from pipeline.store.progress import QUIET, Monitor, Stopwatch
from pipeline.store.shards.feature_set import FeatureSet, MissingRows
from pipeline.store.wording import counted
from pipeline.store.workers.place import Place
from pipeline.text.dataset_families import seen_of

# A worker embeds one shard at a time; the bytes of the file do not depend on the size.
_STORAGE = Storage(rows_per_shard=8 * CHUNK_ROWS)

_CALIBRATION_IMAGES = 2_000
"""Number of evenly spaced training images for the calibration of int8 ranges."""

_REFERENCE_IMAGES = 10_000
"""Maximum number of evenly spaced training images as the reference of CSLS."""


@dataclass(frozen=True)
class Stored:
    """How an embedding file stores its vectors.

    Attributes
    ----------
    store : str. "float32", "float16", "int8", or "binary" (sign bits next to int8). int8 ranges
        are calibrated on images and captions of the training split.
    dim : int or None. Number of leading dimensions to keep, L2-normalised afterwards; None: all.
    csls : bool. Whether cosines of hubs, rows near to everything, are corrected by those of their
        nearest training rows: see `pipeline.retrieval.csls`. The file has two more dimensions, and
        the similarity "dot".

    Examples
    --------
    >>> pipeline.embed(
    ...     "data/mine",
    ...     "half.h5",
    ...     head="data/heads/mine/qian2018-baseline",
    ...     images="data/features/mine/efficientnet-lite0-pool",
    ...     captions="data/text/mine/mean-glove-6b-50d",
    ...     stored=pipeline.Stored("float16"),
    ... ).image_embeddings.shape
    (4, 1280)
    """

    store: Store = "float32"
    dim: int | None = None
    csls: bool = False


_AS_EMBEDDED = Stored()


def embed(
    dataset: str | Path,
    out: str | Path,
    *,
    head: str | Path,
    images: str | Path,
    captions: str | Path | None,
    select: Selection | None = None,
    stored: Stored = _AS_EMBEDDED,
    place: Place | None = None,
    monitor: Monitor = QUIET,
) -> Embeddings:
    """Embed images and their captions with a trained head, and write them to one file.

    The embeddings of each side are first computed as a feature set, whose recipe is the head, in a
    work folder next to `out`; an interrupted call resumes from there. If `out` is a file of the
    same head, rows with unchanged id and features are reused. The file has the same bytes with and
    without reuse, wherever it is computed.

    Parameters
    ----------
    dataset : str or Path. Folder of a prepared dataset.
    out : str or Path. The embedding file, or its URL; see `pipeline.retrieval.embedding_file`.
    head : str or Path. Folder of the trained head.
    images, captions : str, Path or None. Folders of the features that the head was fitted on;
        `captions` may be None if the images have no captions.
    select : Selection or None. Images to embed; the split None is "test" or its alias in
        `pipeline.datasets.splits.USUAL_NAMES`. A split may also be "all" or comma-separated names:
        rows are then ordered by split, and the provenance records the image counts as `splits`.
    stored : Stored. Data type and number of dimensions in the file.
    place : Place or None. Place of computation; None: this process.
    monitor : Monitor. Receives log lines, and progress in rows.

    Returns
    -------
    Embeddings
        The contents of the file, memory-mapped; quantised rows are
        `pipeline.retrieval.quantised.codes.QuantisedRows`. Images without a caption are included.
        With a head that was fitted on averaged captions there is one caption per image; see
        `pipeline.heads.inputs.averaged.averaged`.

    Raises
    ------
    HeadError
        The head is missing or damaged, or was fitted on other features.
    StoreError
        The head's similarity does not support `stored`, or its training split has no captions.
    MissingRows, FailedRows
        An image or caption has no features.
    ShardError
        A worker does not see the files, or another process is writing to the same output.

    Examples
    --------
    >>> space = pipeline.embed(
    ...     "data/mine",
    ...     "test.h5",
    ...     head="data/heads/mine/qian2018-baseline",
    ...     images="data/features/mine/efficientnet-lite0-pool",
    ...     captions="data/text/mine/mean-glove-6b-50d",
    ... )
    >>> space.image_embeddings.shape, space.caption_embeddings.shape
    ((4, 1280), (20, 1280))
    """
    out, head_folder = Path(out), Path(head)
    select, place = select or Selection(), place or Place()
    started = time.monotonic()
    manifest = read_manifest(Path(dataset))
    splits = _splits(manifest, select.split)
    entries = manifest.packed.of_splits(splits)[: select.limit]
    trained = load_head(head_folder)
    require_store(stored.store, trained.head.similarity)
    _require_csls(stored, trained.head.similarity)
    image_set, caption_set = FeatureSet(Path(images)), None
    if captions is not None and entries.num_captions.any():
        caption_set = FeatureSet(Path(captions))
    embeddable = with_features(entries, image_set) if select.leave_out_failed else entries
    provenance = {
        "dataset": manifest.name,
        **_stated(splits, select.split, embeddable),
        **made_from(dataset, image_set.index, caption_set.index if caption_set else None),
        **pretraining_of(trained, image_set, caption_set, manifest.name),
        **({} if stored.dim is None else {"dim": stored.dim}),
    }
    watch = Stopwatch()
    quantiser = _calibrated(
        trained, manifest, embeddable, (image_set, caption_set), stored, monitor.log
    )
    reference = _reference(trained, manifest, (image_set, caption_set), stored, monitor.log)
    if reference is not None:
        provenance["csls"] = trained.train_split
    embeddings = embed_split(
        trained, embeddable, image_set, caption_set, out, provenance, head=head_folder,
        stored=stored, quantiser=quantiser, reference=reference,
        place=replace(place, summary=None), monitor=monitor, watch=watch,
    )  # fmt: skip
    if failed := len(entries) - len(embeddable):
        images = counted(failed, "image without features is", "images without features are")
        monitor.log(f"{images} left out")
    if silent := len(embeddable) - len(embeddings.captioned):
        monitor.log(f"{silent} of {len(embeddable)} images have no caption")
    rows = len(embeddings.image_ids) + len(embeddings.caption_ids)
    metadata = {"rows": rows, "images": len(embeddings.image_ids)}
    place.write_summary(out, metadata, rows, time.monotonic() - started, watch)
    return embeddings


def _calibrated(
    trained: TrainedHead,
    manifest: Manifest,
    embedded: PackedEntries,
    sets: tuple[FeatureSet, FeatureSet | None],
    stored: Stored,
    log: Callable[[str], None],
) -> Quantiser | None:
    """Return the quantiser, calibrated on the training split or, without it, the embedded rows."""
    if stored.store in ("float32", "float16"):
        return quantiser_for(stored.store)
    split, similarity = trained.train_split, trained.head.similarity
    try:
        rows = _some_rows(
            trained, with_features(manifest.select(split), sets[0]), sets, _CALIBRATION_IMAGES
        )
    except (DatasetError, HeadError, MissingRows) as error:
        log(f"ranges are calibrated on the embedded rows, not on split {split}: {error}")
        split = "embedded"
        rows = _some_rows(trained, embedded, sets, _CALIBRATION_IMAGES)
    if stored.dim is not None:
        rows = [shortened(side, stored.dim, similarity) for side in rows]
    counts = {"split": split, "images": len(rows[0]), "captions": len(rows[1])}
    return quantiser_for(stored.store, similarity, rows[0], rows[1], counts)


def _require_csls(stored: Stored, similarity: str) -> None:
    """Raise unless rows with a similarity can be corrected as requested."""
    if stored.csls and similarity != "cosine":
        raise StoreError(
            f"`csls=True` corrects cosines, but the head's similarity is {similarity}; leave it out"
        )
    if stored.csls and stored.store not in ("float32", "float16"):
        raise StoreError(
            f"`csls=True` needs rows stored as float32 or float16, not as {stored.store}, whose "
            "steps are too large for the corrections"
        )


def _reference(
    trained: TrainedHead,
    manifest: Manifest,
    sets: tuple[FeatureSet, FeatureSet | None],
    stored: Stored,
    log: Callable[[str], None],
) -> Reference | None:
    """Return the embeddings of the training split, with as many dimensions as are stored."""
    if not stored.csls:
        return None
    entries = with_features(manifest.select(trained.train_split), sets[0])
    rows = _some_rows(trained, entries, sets, _REFERENCE_IMAGES)
    if not len(rows[1]):
        raise StoreError(
            f"`csls=True` needs captions of split {trained.train_split}, which has none; leave it "
            "out"
        )
    if stored.dim is not None:
        rows = [shortened(side, stored.dim, trained.head.similarity) for side in rows]
    sizes = f"{counted(len(rows[0]), 'image')} and {counted(len(rows[1]), 'caption')}"
    log(f"csls: cosines are corrected by {sizes} of split {trained.train_split}")
    return Reference(*rows)


def _some_rows(
    trained: TrainedHead,
    entries: PackedEntries,
    sets: tuple[FeatureSet, FeatureSet | None],
    most: int,
) -> list[Features]:
    """Return the embeddings of at most so many evenly spaced images, and of their captions."""
    images, captions = sets
    step = -(-len(entries) // most)
    some = entries.take(np.arange(0, len(entries), step))
    rows = trained.head.embed_images(FeatureRows(images, some.ids))
    if captions is None or not some.num_captions.any():
        return [rows, rows[:0]]
    joined = join_pairs(some, images, captions, in_memory=0)
    pairs = averaged(joined) if trained.average_captions else joined
    return [rows, trained.head.embed_captions(pairs.captions)]


def _splits(manifest: Manifest, named: str | None) -> tuple[str, ...]:
    if named is None or (named != ALL and "," not in named):
        return (split_for("test", manifest, named),)
    return splits_of(manifest, named)


def _stated(splits: Sequence[str], named: str | None, entries: PackedEntries) -> dict[str, Any]:
    """Return the splits for the provenance, with image counts if there are several."""
    if splits == (named,) or named is None:
        return {"split": splits[0]}
    counts = entries.counts
    return {"split": named, "splits": [[split, counts.get(split, 0)] for split in splits]}


def require_head_of(head: str | Path, experiment: str) -> None:
    """Raise HeadError if a folder holds the head of another experiment, or no head."""
    if (stored := load_head(head).experiment) != experiment:
        raise HeadError(
            f"{head} holds the head of experiment {stored!r}, not of {experiment!r}; correct "
            "`head=...` or `experiment=...`"
        )


def pretraining_of(
    trained: TrainedHead, images: FeatureSet, captions: FeatureSet | None, dataset: str
) -> dict[str, Any]:
    """Return the datasets that the encoders of a head were trained on, for the provenance."""
    trained_on = {
        "images": images.index.header.trained_on,
        "captions": captions.index.header.trained_on if captions else (),
        "word vectors": (trained.word_vectors or {}).get("trained_on", ()),
    }
    both = {
        "pretraining": {side: list(names) for side, names in trained_on.items() if names},
        "has_seen": {
            s: seen for s, names in trained_on.items() if (seen := seen_of(dataset, names))
        },
    }
    return {key: sides for key, sides in both.items() if sides}


def embed_split(
    trained: TrainedHead,
    entries: Sequence[ImageEntry],
    images: FeatureSet,
    captions: FeatureSet | None,
    out: Path,
    provenance: Mapping[str, Any],
    *,
    head: Path | None = None,
    stored: Stored = _AS_EMBEDDED,
    quantiser: Quantiser | None = None,
    reference: Reference | None = None,
    place: Place | None = None,
    monitor: Monitor = QUIET,
    watch: Stopwatch | None = None,
) -> Embeddings:
    """Embed the images of `entries`, in this order, and their captions, as `embed` does."""
    packed, dataset = PackedEntries.of(entries), str(provenance.get("dataset", ""))

    def source(
        side: Side, ids: Sequence[str], rows: Rows, read: Callable[[int], Sequence[str]],
        features: FeatureSet,
    ) -> EmbeddingSource:  # fmt: skip
        return EmbeddingSource(trained, side, dataset, ids, rows, read, features, head)

    ids = packed.ids
    trained.inputs.images.require(images, "image")
    if captions is not None:
        trained.inputs.captions.require(captions, "caption")
    elif packed.num_captions.any():
        raise HeadError("the images have captions, but no caption features are passed; name them")
    sides = [source("images", ids, FeatureRows(images, ids), _itself(ids), images)]
    caption_ids: Sequence[str] = ()
    caption_image_ids: Sequence[str] = ()
    if captions is not None:
        # Every row is read once, so caching does not help.
        joined = join_pairs(packed, images, captions, in_memory=0)
        pairs = averaged(joined) if trained.average_captions else joined
        caption_ids, caption_image_ids = pairs.caption_ids, pairs.caption_image_ids
        read = _read(joined, trained)
        sides.append(source("captions", caption_ids, pairs.captions, read, captions))
    crc32: dict[str, npt.NDArray[np.uint32]] = {"captions": np.zeros(0, np.uint32)}
    crc32 |= {side.side: side.crc32() for side in sides}
    header = EmbeddingsHeader(
        ids, caption_ids, caption_image_ids, "dot" if reference else trained.head.similarity,
        {**trained.provenance, **provenance}, quantiser, crc32,
    )  # fmt: skip
    earlier = None  # rows are reusable only as embedded: all dimensions, float32
    if quantiser is None and stored.dim is None and reference is None:
        earlier = earlier_embeddings(out, trained.provenance)
    copied = [copied_rows(side, earlier, monitor.log) for side in sides]
    pending = [rows.others if rows else side for rows, side in zip(copied, sides, strict=True)]
    digest = sha256(repr([side and side.origin.digest() for side in pending]).encode())
    digest.update(sides[0].tensors_sha256.encode())
    with _work_folder(absolute(out), digest.hexdigest()[:16]) as work:
        blocks: list[Blocks] = []
        for rows, side in zip(copied, pending, strict=True):
            computed = None
            if side is not None:
                folder = work / side.side
                make_features(
                    side, folder, storage=_STORAGE, place=place, monitor=monitor, watch=watch
                )
                computed = FeatureSet(folder)
            blocks.append(rows.blocks(computed) if rows else _blocks(computed))
        if (dim := stored.dim) is not None:
            blocks = [
                (shortened(block, dim, trained.head.similarity) for block in side)
                for side in blocks
            ]
        if reference is not None:
            blocks = [
                map(partial(reference.extended, side=source.side), side)
                for source, side in zip(sides, blocks, strict=True)
            ]
        blocks[-1] = _removing(work, blocks[-1])
        with sent_when_written(out, monitor.log) as file:
            return write_in_blocks(file, header, blocks[0], chain.from_iterable(blocks[1:]))


def _read(joined: Pairs, trained: TrainedHead) -> Callable[[int], Sequence[str]]:
    """Return the function from a caption row to the ids of its input features."""
    if not trained.average_captions:
        return _itself(joined.caption_ids)
    starts = first_captions_of(joined.image_of_caption)
    return lambda row: joined.caption_ids[starts[row] : starts[row + 1]]


def _itself(ids: Sequence[str]) -> Callable[[int], Sequence[str]]:
    return lambda row: [ids[row]]


def _blocks(embedded: FeatureSet | None) -> Blocks:
    assert embedded is not None, "without copied rows, all are computed"
    rows = len(embedded.ids)
    for start in range(0, rows, CHUNK_ROWS):
        yield embedded.read_rows(np.arange(start, min(start + CHUNK_ROWS, rows)))


def _removing(work: Path, blocks: Blocks) -> Blocks:
    """Yield the last blocks, then delete the work folder, before the file is renamed into place."""
    yield from blocks
    # Not after the rename: a kill in between would leave the folder behind, since a finished file
    # needs no further call.
    if (url := url_of(work)) is None:
        shutil.rmtree(work, ignore_errors=True)
    else:
        open_remote(url).remove_all()


@contextmanager
def _work_folder(out: Path, fingerprint: str) -> Iterator[Path]:
    """Yield the locked work folder of a head and its features; delete those of other inputs."""
    if not out.name:
        raise OutputError(f"{out} is not a file name; pass the path of the embedding file")
    parent = out.parent / WORK_FOLDER
    work = parent / f"{out.name}-{fingerprint}"
    if url_of(out) is not None:  # each set in it has a writer's lease of its own
        yield work
        return
    with only_writer(parent / f"{out.name}.lock", out):
        # Left by dead runs: while we hold the lock, none is alive.
        for other in work_folders(out):
            if other != work:
                shutil.rmtree(other)
        work.mkdir(exist_ok=True)
        yield work
