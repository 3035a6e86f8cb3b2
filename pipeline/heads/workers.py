"""Embedding on workers: what they are asked for, what each of them does, and what comes back.

Workers leave embedded chunks in a work folder beside the output, each in a file named after the
SHA-256 of its bytes. A chunk whose file is there and matches its name needs no more work.
"""

import io
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from pipeline.devices import one_core_each
from pipeline.files import OutputError, appearing_whole
from pipeline.hashing import canonical_json, sha256_of_file
from pipeline.heads import HeadError
from pipeline.heads.base import Head
from pipeline.heads.chunks import CAPTIONS, IMAGES, RowChunk, embed_chunk, split_into_chunks
from pipeline.heads.inputs.averaged import AveragedRows
from pipeline.heads.inputs.feature_rows import FeatureRows, RowNumbers, Rows
from pipeline.heads.inputs.pairs import first_captions_of
from pipeline.heads.trained_head import TENSORS_FILE, load_head
from pipeline.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.retrieval.embedding_file import Blocks
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.plan import Span
from pipeline.shards.resume.distributed import Executor
from pipeline.shards.resume.job_ref import JOB_FILES, JobRef, NotShared, OnProgress, appears, submit
from pipeline.shards.resume.locking import (
    WORK_FOLDER,
    only_writer,
    remove_leftovers,
    work_folders,
)
from pipeline.shards.writer import explained

_loading = Lock()


@dataclass(frozen=True, eq=False)
class EmbeddingJob:
    """What workers embed, with what.

    Attributes
    ----------
    head : folder of the trained head.
    images, captions : folders of the features; workers must see all three under the same paths.
    image_ids, caption_ids : ids of the features' rows, in order.
    image_of_caption : (captions,) int64 ascending, the image row of each caption.
    average_captions : whether the captions of an image are embedded as one, their mean.
    """

    head: Path
    images: Path
    captions: Path
    image_ids: Sequence[str]
    caption_ids: Sequence[str]
    image_of_caption: RowNumbers
    average_captions: bool

    def chunks(self) -> list[RowChunk]:
        """Return the work: the chunks of the images, then those of the captions to embed."""
        captions = self.image_ids if self.average_captions else self.caption_ids
        return split_into_chunks(len(self.image_ids), len(captions))

    def common(self) -> dict[str, Any]:
        """Return, as JSON values, what the tasks of all chunks need."""
        return {
            "head": str(self.head.absolute()),
            "tensors_sha256": sha256_of_file(self.head / TENSORS_FILE),
            "folders": {
                IMAGES: str(self.images.absolute()),
                CAPTIONS: str(self.captions.absolute()),
            },
        }

    def own(self, chunks: Iterable[RowChunk]) -> Iterator[dict[str, Any]]:
        """Yield, as JSON values, what the task of each chunk needs: the rows to read.

        `digest` differs where a feature does. `image_of_row` counts the images of the chunk from
        0 where captions are averaged; otherwise it is None.
        """
        features = {IMAGES: FeatureSet(self.images), CAPTIONS: FeatureSet(self.captions)}
        ids = {IMAGES: self.image_ids, CAPTIONS: self.caption_ids}
        starts = first_captions_of(self.image_of_caption)
        for chunk in chunks:
            start, stop, image_of_row = chunk.span.start, chunk.span.stop, None
            if chunk.side == CAPTIONS and self.average_captions:
                first, (start, stop) = start, starts[[start, stop]].tolist()
                image_of_row = (self.image_of_caption[start:stop] - first).tolist()
            rows = ids[chunk.side][start:stop]
            digest = FeatureRows(features[chunk.side], rows).digest()
            yield {"ids": list(rows), "digest": digest, "image_of_row": image_of_row}

    def fingerprint(self) -> str:
        """Return 16 hex digits that differ where the head, a row or a feature does."""
        found = sha256()
        for values in chain([self.common()], self.own(self.chunks())):
            found.update(canonical_json(values).encode())
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class EmbeddedChunk:
    """What a worker reports of a chunk: the file with its embeddings, and the seconds by stage."""

    chunk: RowChunk
    file: str
    seconds: dict[str, float]


@contextmanager
def embedded_on_workers(
    job: EmbeddingJob,
    out: Path,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> Iterator[tuple[Blocks, Blocks]]:
    """Give what workers make of images and captions; as `pipeline.heads.embed.embedded_here`.

    All of it is made before any is given, and is kept until the caller has done with it.

    Parameters
    ----------
    job : what is embedded.
    out : the embedding file that the rows are for; the work folder lies beside it.
    executor : runs the tasks on workers.
    progress : called with rows done, rows in all, and 0.
    watch : the seconds of all workers are added to it.

    Raises
    ------
    NotShared
        A worker does not see the head, the features or the work folder.
    HeadError
        A chunk cannot be embedded.
    ShardError
        Another process is writing the same output, or the disk is full.
    """
    watch = watch or Stopwatch()
    chunks = job.chunks()
    total = sum(len(chunk.span) for chunk in chunks)
    with _work_folder(out.absolute(), job.fingerprint()) as work:
        files = {chunk: found for chunk in chunks if (found := _sound_file(work, chunk))}
        done = sum(len(chunk.span) for chunk in files)
        progress(done, total, 0)
        pending = [chunk for chunk in chunks if chunk not in files]
        submitted, refs = submit(work, job.common(), job.own(pending))
        tasks = [*zip(refs, pending, strict=True)]
        with closing(executor(make_chunk, tasks, no_progress, submitted.cancel)) as results:
            for result in results:
                watch.add_all(result.seconds)
                path = work / result.file
                if not appears(path) or _sha256_in(path) != sha256_of_file(path):
                    raise NotShared(
                        f"{path}, which a worker says that it has made, is not seen here or is "
                        "another file; the output must lie in a folder that all machines share "
                        "under the same path"
                    )
                files[result.chunk] = path
                done += len(result.chunk.span)
                progress(done, total, 0)
        yield _load(files, chunks, IMAGES), _load(files, chunks, CAPTIONS)
        shutil.rmtree(work, ignore_errors=True)


def _load(files: Mapping[RowChunk, Path], chunks: Iterable[RowChunk], side: str) -> Blocks:
    for chunk in chunks:
        if chunk.side == side:
            yield np.load(files[chunk], allow_pickle=False)


def make_chunk(ref: JobRef, chunk: RowChunk, on_progress: OnProgress) -> EmbeddedChunk:
    """Embed one chunk, on a worker, and leave it in the work folder.

    Raises
    ------
    NotShared
        This machine does not see the job, the head or the features, or sees others.
    RunEnded
        The job was cancelled.
    """
    with _loading:
        head, features = _loaded(replace(ref, own=None))
    own = ref.read_own()
    found: Rows = FeatureRows(features[chunk.side], own["ids"])
    if found.digest() != own["digest"]:
        folder = features[chunk.side].folder
        raise NotShared(f"a worker sees other features in {folder} than the command")
    if own["image_of_row"] is not None:
        found = AveragedRows(found, np.array(own["image_of_row"], np.int64))
    watch = Stopwatch()
    with one_core_each():
        rows = embed_chunk(head, found, replace(chunk, span=Span(0, len(found))), watch)
    with watch.timing(WRITE):
        stream = io.BytesIO()
        np.save(stream, rows, allow_pickle=False)
        data = stream.getvalue()
        path = ref.path.parent / f"{chunk}-{sha256(data).hexdigest()}.npy"
        ref.require_active()
        with explained(path, len(data)), appearing_whole(path) as unfinished:
            unfinished.write_bytes(data)
    return EmbeddedChunk(chunk, path.name, watch.seconds)


@lru_cache(maxsize=1)
def _loaded(job: JobRef) -> tuple[Head, dict[str, FeatureSet]]:
    """Return a job's head and the features of both sides, opened once in a process."""
    torch.set_num_threads(1)
    common = job.read()
    trained = load_head(common["head"])
    if trained.tensors_sha256 != common["tensors_sha256"]:
        raise HeadError(f"a worker sees another head in {common['head']} than the command")
    folders = common["folders"]
    return trained.head, {side: FeatureSet(Path(folder)) for side, folder in folders.items()}


@contextmanager
def _work_folder(out: Path, fingerprint: str) -> Iterator[Path]:
    """Give the folder of a job's chunks, as the only writer of `out`; other jobs' are removed."""
    if not out.name:
        raise OutputError(f"{out} cannot be an embedding file; give the name of a file")
    parent = out.parent / WORK_FOLDER
    work = parent / f"{out.name}-{fingerprint}"
    work.mkdir(parents=True, exist_ok=True)
    with only_writer(parent / f"{out.name}.lock", out):
        # Of dead runs: the lock is held, so none of them goes on.
        remove_leftovers(work, "*.part", JOB_FILES)
        for other in work_folders(out):
            if other != work:
                shutil.rmtree(other)
        yield work


def _sound_file(work: Path, chunk: RowChunk) -> Path | None:
    """Return the file of a chunk if there is an undamaged one; damaged ones are removed."""
    for path in sorted(work.glob(f"{chunk}-*.npy")):
        if sha256_of_file(path) == _sha256_in(path):
            return path
        path.unlink()
    return None


def _sha256_in(path: Path) -> str:
    return path.stem.rpartition("-")[2]
