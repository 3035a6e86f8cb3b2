"""One part of an embedding file as a task: what a worker is told, and what it does.

Workers leave their parts in a work folder beside the output, each named after the SHA-256 of its
bytes: a part that is there and is what its name says needs no more work.
"""

import io
import re
import shutil
from collections.abc import Callable, Iterator
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
from pipeline.heads.base import Head
from pipeline.heads.data.pairs import AveragedRows
from pipeline.heads.data.rows import FeatureRows, Features, Rows
from pipeline.heads.embed import CAPTIONS, IMAGES, Part, embed_part, parts_of
from pipeline.heads.errors import HeadError
from pipeline.heads.trained_head import TENSORS_FILE, load_head
from pipeline.progress import WRITE, Progress, Stopwatch, no_progress
from pipeline.shards.build.distributed import Executor
from pipeline.shards.build.feature_build import WORK_FOLDER
from pipeline.shards.build.job import ORDERS, JobRef, NotShared, RunEnded, appears, issue
from pipeline.shards.build.locking import only_writer
from pipeline.shards.feature_set import FeatureSet
from pipeline.shards.write import explained

_loading = Lock()


@dataclass(frozen=True)
class EmbeddingJob:
    """What workers embed.

    Attributes
    ----------
    head : folder of the trained head.
    images, captions : folders of the features; workers must see all three under the same paths.
    image_ids, caption_ids : rows in order. owner : the image row of each caption.
    average_captions : see `pipeline.heads.trained_head.embed_split`.
    """

    head: Path
    images: Path
    captions: Path
    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    image_of_caption: tuple[int, ...]
    average_captions: bool

    def to_json(self) -> dict[str, Any]:
        """Return the order as JSON values, with what tells other features and heads apart."""
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
            "owner": [int(row) for row in self.image_of_caption],
            "average_captions": self.average_captions,
        }


@dataclass(frozen=True)
class MadePart:
    """What a worker says of a part that it has made: its file and the seconds by stage."""

    part: Part
    file: str
    seconds: dict[str, float]


def embed_on_workers(
    order: EmbeddingJob,
    out: Path,
    executor: Executor,
    progress: Progress = no_progress,
    watch: Stopwatch | None = None,
) -> tuple[Features, Features]:
    """Return the embeddings of images and captions, made by workers, as `embed_here` gives them.

    Parameters
    ----------
    order : what is embedded.
    out : the embedding file that they are for; the work folder lies beside it.
    executor : where the work goes.
    progress, watch : see `embed_here`.

    Raises
    ------
    NotShared
        A worker does not see the head, the features or the work folder.
    HeadError
        A part cannot be embedded.
    ShardError
        Another process is writing the same output, or the disk is full.
    """
    watch = watch or Stopwatch()
    values = order.to_json()
    parts = parts_of(len(order.image_ids), len(order.caption_ids))
    total = len(order.image_ids) + len(order.caption_ids)
    with _work_folder(out.absolute(), sha256_of_json(values)[:16]) as work:
        made = {part: found for part in parts if (found := _found(work, part))}
        done = sum(len(part.span) for part in made)
        progress(done, total, 0)
        ticket = issue(work, values)
        jobs = [(ticket, part) for part in parts if part not in made]
        with closing(executor(make_part, jobs, _deaf, ticket.withdraw)) as results:
            for result in results:
                watch.add_all(result.seconds)
                path = work / result.file
                if not appears(path) or _sha256_in(path) != sha256_of_file(path):
                    raise NotShared(
                        f"{path}, which a worker says that it has made, is not seen here or is "
                        "another file; the output must lie in a folder that all machines share "
                        "under the same path"
                    )
                made[result.part] = path
                done += len(result.part.span)
                progress(done, total, 0)
        loaded = {part: np.load(made[part], allow_pickle=False) for part in parts}
        shutil.rmtree(work, ignore_errors=True)
    images, captions = (
        np.concatenate([rows for part, rows in loaded.items() if part.side == side])
        for side in (IMAGES, CAPTIONS)
    )
    return images, captions


def make_part(ticket: JobRef, part: Part, tell: Callable[[Any], None]) -> MadePart:
    """Embed one part, on a worker, and leave it in the work folder.

    Raises
    ------
    NotShared
        This machine does not see the order, the head or the features, or sees others.
    RunEnded
        The order was withdrawn.
    """
    with _loading:
        head, sides = _loaded(ticket)
    watch = Stopwatch()
    with one_core_each():
        rows = embed_part(head, sides[part.side], part, watch)
    with watch.timing(WRITE):
        stream = io.BytesIO()
        np.save(stream, rows, allow_pickle=False)
        data = stream.getvalue()
        path = ticket.path.parent / f"{part}-{sha256(data).hexdigest()}.npy"
        if not ticket.valid:
            raise RunEnded(f"{ticket.path} was withdrawn: the run that wrote it has ended")
        with explained(path, len(data)), appearing_whole(path) as unfinished:
            unfinished.write_bytes(data)
    return MadePart(part, path.name, watch.seconds)


@lru_cache(maxsize=1)
def _loaded(ticket: JobRef) -> tuple[Head, dict[str, Rows]]:
    torch.set_num_threads(1)
    order = ticket.read()
    folders = {side: Path(folder) for side, folder in order["folders"].items()}
    trained = load_head(Path(order["head"]))
    rows: dict[str, Rows] = {}
    for side, folder in folders.items():
        rows[side] = FeatureRows(FeatureSet(folder), order["ids"][side])
        if rows[side].digest() != order["digests"][side]:
            raise NotShared(f"a worker sees other features in {folder} than the command")
    if trained.tensors_sha256 != order["tensors_sha256"]:
        raise HeadError(f"a worker sees another head in {order['head']} than the command")
    if order["average_captions"]:
        rows[CAPTIONS] = AveragedRows(rows[CAPTIONS], np.array(order["owner"], np.int64))
    return trained.head, rows


@contextmanager
def _work_folder(out: Path, fingerprint: str) -> Iterator[Path]:
    if not out.name:
        raise OutputError(f"{out} cannot be an embedding file; give the name of a file")
    parent = out.parent / WORK_FOLDER
    work = parent / f"{out.name}-{fingerprint}"
    work.mkdir(parents=True, exist_ok=True)
    with only_writer(parent / f"{out.name}.lock", out):
        # Of dead runs: the lock is held, so none of them goes on.
        for leftover in (*work.glob("*.part"), *work.glob(ORDERS)):
            leftover.unlink(missing_ok=True)
        for other in parent.iterdir():
            if other != work and re.fullmatch(re.escape(out.name) + "-[0-9a-f]{16}", other.name):
                shutil.rmtree(other)
        yield work


def _found(work: Path, part: Part) -> Path | None:
    """Return the file of a part that is there and sound; damaged ones are removed."""
    for path in sorted(work.glob(f"{part}-*.npy")):
        if sha256_of_file(path) == _sha256_in(path):
            return path
        path.unlink()
    return None


def _sha256_in(path: Path) -> str:
    return path.stem.rpartition("-")[2]


def _deaf(message: object) -> None:
    """Take no notice: parts are short."""
