"""Embedding on workers: what they are asked for, what each of them does, and what comes back.

Workers leave embedded chunks in a work folder beside the output, each in a file named after the
SHA-256 of its bytes. A chunk whose file is there and matches its name needs no more work.
"""

import io
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from pipeline.devices import one_core_each
from pipeline.files import OutputError, appearing_whole
from pipeline.hashing import sha256_of_file, sha256_of_json
from pipeline.heads import HeadError
from pipeline.heads.base import Head
from pipeline.heads.chunks import CAPTIONS, IMAGES, RowChunk, embed_chunk, split_into_chunks
from pipeline.heads.data.averaged import AveragedRows
from pipeline.heads.data.rows import FeatureRows, Features, Rows
from pipeline.heads.trained_head import TENSORS_FILE, load_head
from pipeline.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.shards.build.distributed import Executor
from pipeline.shards.build.job_ref import JOB_FILES, JobRef, NotShared, OnProgress, appears, submit
from pipeline.shards.build.locking import (
    WORK_FOLDER,
    only_writer,
    remove_leftovers,
    work_folders,
)
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.write import explained

_loading = Lock()


@dataclass(frozen=True)
class EmbeddingJob:
    """What workers embed, with what.

    Attributes
    ----------
    head : folder of the trained head.
    images, captions : folders of the features; workers must see all three under the same paths.
    image_ids, caption_ids : ids of the features' rows, in order.
    image_of_caption : the image row of each caption.
    average_captions : whether the captions of an image are embedded as one, their mean.
    """

    head: Path
    images: Path
    captions: Path
    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    image_of_caption: tuple[int, ...]
    average_captions: bool

    def chunks(self) -> list[RowChunk]:
        """Return the work: the chunks of the images, then those of the captions to embed."""
        captions = self.image_ids if self.average_captions else self.caption_ids
        return split_into_chunks(len(self.image_ids), len(captions))

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values, which differ where the head or a feature does."""
        sides = {IMAGES: (self.images, self.image_ids), CAPTIONS: (self.captions, self.caption_ids)}
        return {
            "head": str(self.head.absolute()),
            "tensors_sha256": sha256_of_file(self.head / TENSORS_FILE),
            "folders": {side: str(folder.absolute()) for side, (folder, _) in sides.items()},
            "digests": {
                side: FeatureRows(FeatureSet(folder), ids).digest()
                for side, (folder, ids) in sides.items()
            },
            "ids": {side: list(ids) for side, (_, ids) in sides.items()},
            "image_of_caption": list(self.image_of_caption),
            "average_captions": self.average_captions,
        }


@dataclass(frozen=True)
class EmbeddedChunk:
    """What a worker reports of a chunk: the file with its embeddings, and the seconds by stage."""

    chunk: RowChunk
    file: str
    seconds: dict[str, float]


def embed_on_workers(
    job: EmbeddingJob,
    out: Path,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> tuple[Features, Features]:
    """Have workers embed images and captions; same result as `pipeline.heads.embed.embed_here`.

    Parameters
    ----------
    job : what is embedded.
    out : the embedding file that the rows are for; the work folder lies beside it.
    executor : runs the tasks on workers.
    progress : called with rows done, rows in all, and 0.
    watch : the seconds of all workers are added to it.

    Returns
    -------
    images, captions : (n, dim) or (n, parts, dim) float32 of each side.

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
    values = job.to_json()
    chunks = job.chunks()
    total = sum(len(chunk.span) for chunk in chunks)
    with _work_folder(out.absolute(), sha256_of_json(values)[:16]) as work:
        files = {chunk: found for chunk in chunks if (found := _sound_file(work, chunk))}
        done = sum(len(chunk.span) for chunk in files)
        progress(done, total, 0)
        ref, _ = submit(work, values)
        tasks = [(ref, chunk) for chunk in chunks if chunk not in files]
        with closing(executor(make_chunk, tasks, no_progress, ref.cancel)) as results:
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
        loaded = {chunk: np.load(files[chunk], allow_pickle=False) for chunk in chunks}
        shutil.rmtree(work, ignore_errors=True)
    images, captions = (
        np.concatenate([rows for chunk, rows in loaded.items() if chunk.side == side])
        for side in (IMAGES, CAPTIONS)
    )
    return images, captions


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
        head, sides = _loaded(ref)
    watch = Stopwatch()
    with one_core_each():
        rows = embed_chunk(head, sides[chunk.side], chunk, watch)
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
def _loaded(ref: JobRef) -> tuple[Head, dict[str, Rows]]:
    """Return a job's head and the rows of both sides, read once in a process."""
    torch.set_num_threads(1)
    job = ref.read()
    trained = load_head(job["head"])
    rows: dict[str, Rows] = {}
    for side, folder in job["folders"].items():
        rows[side] = FeatureRows(FeatureSet(Path(folder)), job["ids"][side])
        if rows[side].digest() != job["digests"][side]:
            raise NotShared(f"a worker sees other features in {folder} than the command")
    if trained.tensors_sha256 != job["tensors_sha256"]:
        raise HeadError(f"a worker sees another head in {job['head']} than the command")
    if job["average_captions"]:
        image_of_caption = np.array(job["image_of_caption"], np.int64)
        rows[CAPTIONS] = AveragedRows(rows[CAPTIONS], image_of_caption)
    return trained.head, rows


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
