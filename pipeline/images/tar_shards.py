"""Images in tar files as shards, one for each file: the way to features without a shared disk.

A worker copies a tar file to its disk in one sequential read, extracts its images from there, and
deletes it. A file that cannot be read is one failed row with the file's name as id.
"""

import logging
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import numpy as np

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.plain_images import plain_images
from pipeline.datasets.readers.tables.tar_shards import SUFFIX
from pipeline.images.image_source import ImageSource, image_source, part_of_images
from pipeline.images.recipes import Recipe
from pipeline.store.errors import FileReadError
from pipeline.store.hashing import sha256_of_json
from pipeline.store.jobs.options import Compute
from pipeline.store.jobs.sharded_source import OpenShard, ShardKey, ShardRows
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.mirror import receive
from pipeline.store.objects.retry import RemoteError, retry
from pipeline.store.objects.urls import absolute, common_folder, url_of
from pipeline.store.progress import Monitor, Stopwatch
from pipeline.store.shards.format import MISSING, UNREADABLE, FeatureHeader, RowBlock
from pipeline.store.shards.plan import Span
from pipeline.store.wording import counted
from pipeline.store.workers.shipping import Ship, scratch

_log = logging.getLogger(__name__)


class TarShards:
    """The images of tar files as a `pipeline.store.jobs.object_shards.ShardedSource`."""

    unit = "image"
    rows_per_shard = None

    def __init__(
        self, tars: Sequence[Path], recipe: Recipe, compute: Compute, monitor: Monitor
    ) -> None:
        """Load the weights. Ids begin with the path of a tar file below their common folder."""
        folder = common_folder(tars)
        self._folder = url_of(folder) or str(folder)
        self._names = [absolute(tar).relative_to(folder).as_posix() for tar in tars]
        if twice := len(self._names) - len({*self._names}):
            raise DatasetError(f"{twice} tar files are named twice; name each file once")
        folders = {name.removesuffix(SUFFIX) for name in self._names}
        for name in self._names:
            if shared := folders.intersection(map(str, PurePosixPath(name).parents)):
                raise DatasetError(
                    f"{name} and {min(shared)}{SUFFIX} are both in the folder {min(shared)}, so "
                    "that two images may have one id; rename one, or extract them to two sets"
                )
        self._there: Collection[str] = ()
        dataset = folder.name or "images"
        # Of no images: for the header, and for what a worker needs.
        self._source = image_source([], [], recipe, dataset, compute, monitor)
        self.header: FeatureHeader = self._source.header
        self.gpu: bool = compute.gpu
        self._how = replace(compute, weights=compute.named_weights)

    def shard_keys(self) -> list[ShardKey]:
        """Return the key of each shard: of the name of its file, and of its size and ETag."""
        remote = open_remote(self._folder)
        there = remote.files()
        if not any(name in there for name in self._names):
            raise DatasetError(
                f"{remote.shown} has none of the {counted(len(self._names), 'tar file')}, such as "
                f"{self._names[0]}; check the pattern and the bucket"
            )
        self._there = {name for name in self._names if name in there}
        return [
            ShardKey(
                sha256_of_json(name)[:12],
                sha256_of_json(there[name])[:12] if name in there else "",
            )
            for name in self._names
        ]

    def open_shard(self, number: int, threads: int | None, ship: Ship) -> OpenShard:
        """Return a function that reads a tar file, and opens its images."""
        source, how, name = self._source, self._how, self._names[number]
        how = replace(
            how,
            batch_size=how.batch_size or source.parallelism.batch_size,
            threads=how.threads or (None if how.gpu else threads),
        )
        part = partial(
            part_of_images, source.recipe, how, self.header.dataset, source.shipped(ship), None
        )
        return partial(_opened, self._folder, name, name in self._there, part, self.header)


@contextmanager
def _opened(
    folder: str,
    name: str,
    is_there: bool,
    part: Callable[[int, Sequence[str], Sequence[Path]], ImageSource],
    header: FeatureHeader,
) -> Iterator[ShardRows]:
    """Copy a tar file for as long as its images are open."""
    with TemporaryDirectory(prefix="pipeline-", dir=scratch()) as copied:
        tar = Path(copied, name)
        tar.parent.mkdir(parents=True, exist_ok=True)
        try:
            retry(partial(receive, open_remote(folder), name, tar), _log.warning)
            images = plain_images([tar], lambda line: None)
        except (DatasetError, RemoteError) as error:
            missing = isinstance(error, RemoteError)
            # Other errors are of the store, not of the file: they end the run.
            if isinstance(error, RemoteError) and error.cause != "missing":
                raise
            if missing and is_there:
                raise FileReadError(
                    f"{error} for {socket.gethostname()}, and did for the command; mount its "
                    "folder on all workers, or rerun the command if the file has been deleted"
                ) from error
            reason = str(error).replace(f"{copied}/", "")
            yield _Unreadable(header, [name], MISSING if missing else UNREADABLE, reason)
            return
        below = PurePosixPath(name).parent
        entries = images.select(None)
        ids = [(below / image).as_posix() for image in entries.ids]
        yield part(len(ids), ids, images.files(entries))


class _Unreadable:
    """A tar file that cannot be read, as a failed row."""

    def __init__(self, header: FeatureHeader, ids: Sequence[str], status: int, reason: str) -> None:
        self.header, self.ids, self._status, self._reason = header, ids, status, reason

    def compute(self, spans: Sequence[Span], watch: Stopwatch) -> Iterator[tuple[int, RowBlock]]:
        """Yield the failed row."""
        features = np.zeros((1, *self.header.row_shape), np.float32)
        yield 0, RowBlock(features, np.array([self._status], np.uint8), (self._reason,))
