"""The output of a pull: checks, the work folder, and publishing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.builder.locking import (
    WORK_FOLDER,
    only_writer,
    remove_if_empty,
    require_output_folder,
)
from pipeline.store.guard import crashes_of
from pipeline.store.hashing import sha256_of_file, sha256_of_json
from pipeline.store.objects.retry import RemoteError
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import DamagedShard, OtherShard, ShardError
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import is_view
from pipeline.store.share.contents import SharedFile, encoder_of
from pipeline.store.share.meter import Meter
from pipeline.store.share.offer import Offer
from pipeline.store.share.spans import feature_spans

_ENCODER_WORK = "encoder"


class PullOutput:
    """An output folder, and the work folder next to it for received files."""

    def __init__(self, out: Path, offer: Offer, kind: str) -> None:
        """Raise unless the set may be stored there; nothing is written yet."""
        self.out: Path = out.resolve()
        self._offer = offer
        self._parent = self.out.parent / WORK_FOLDER
        require_output_folder(self.out, self._parent)
        self.encoder: Path = encoder_of(self.out)
        fingerprint = sha256_of_json([kind, offer.index_bytes.decode()])[:16]
        # One per set, and another one for single rows: a pull resumes only its own files.
        self.work: Path = self._parent / f"{self.out.name}-{fingerprint}"
        self._require_same_features()

    @contextmanager
    def pulling(self) -> Iterator[None]:
        """Hold the work folder as the only pull into this output."""
        # A lock of its own: pulls of rows also build a set, which locks the output itself.
        with only_writer(self._parent / f"{self.out.name}.pull.lock", self.out):
            self.work.mkdir(exist_ok=True)
            try:
                yield
            finally:
                remove_if_empty(self.work)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the output against all other commands that write shards."""
        with only_writer(self._parent / f"{self.out.name}.lock", self.out):
            yield

    def require_room(self, size: int) -> None:
        """Raise unless `size` more bytes fit on the disk."""
        free = shutil.disk_usage(self._parent).free
        if size > free:
            raise RemoteError(
                f"{size / 1e6:,.1f} MB are needed in {self._parent}, and {free / 1e6:,.1f} MB are "
                "free; free some space, choose another output folder, or pull fewer rows"
            )

    @property
    def is_finished(self) -> bool:
        """Whether the output has the index of this set."""
        path = self.out / INDEX_FILE
        return path.is_file() and path.read_bytes() == self._offer.index_bytes

    def take_over_shards(self, meter: Meter) -> None:
        """Verify the shards in the work folder, and link valid ones of the output into it."""
        shards = self._offer.index.shards
        listed = {(entry.file, entry.sha256) for entry in shards}
        strange = {path.name for path in self.out.glob("shard-*.h5")} - {name for name, _ in listed}
        if current := _index_of(self.out):
            strange |= {e.file for e in current.shards if (e.file, e.sha256) not in listed}
        if strange:
            raise self._other_shard(min(strange))
        paths = [folder / entry.file for entry in shards for folder in (self.work, self.out)]
        sizes = {path: path.stat().st_size for path in paths if path.is_file()}
        with meter.expecting("check", sum(sizes.values())):
            for entry in shards:
                fetched, existing = self.work / entry.file, self.out / entry.file
                if fetched in sizes and sha256_of_file(fetched) != entry.sha256:
                    fetched.unlink()
                if existing in sizes and not fetched.is_file():
                    if sha256_of_file(existing) == entry.sha256:
                        with suppress(OSError):  # a file system without links: it is fetched again
                            os.link(existing, fetched)
                    elif current is None:  # with an index it could be a corrupt shard of this set
                        raise self._other_shard(entry.file)
                meter.exists(sizes.get(fetched, 0) + sizes.get(existing, 0))

    def _other_shard(self, name: str) -> OtherShard:
        return OtherShard(
            f"{self.out} has {name}, which is not a shard of the set of "
            f"{self._offer.remote.shown}; choose another output folder, or delete it if obsolete"
        )

    def missing_others(self, descriptions: bool) -> dict[Path, SharedFile]:
        """Return the other files to fetch, by their path in the work folder."""
        missing: dict[Path, SharedFile] = {}
        contents = self._offer.contents
        if contents is None:
            return missing
        for file in contents.encoder:
            path = self.encoder / file.file
            if not path.is_file():
                missing[self.work / _ENCODER_WORK / file.file] = file
            elif sha256_of_file(path) != file.sha256:
                raise OtherShard(
                    f"{path} is not an encoder file of this set; choose another output folder, or "
                    f"delete {self.encoder} if it is obsolete"
                )
        for file in contents.descriptions if descriptions else ():
            if not _holds(self.out / file.file, file):
                missing[self.work / file.file] = file
        return {path: file for path, file in missing.items() if not _holds(path, file)}

    def open_work(self) -> FeatureSet:
        """Return the set in the work folder, each shard first opened in a child process."""
        (self.work / INDEX_FILE).write_bytes(self._offer.index_bytes)
        shards = [(self.work / entry.file, 0) for entry in self._offer.index.shards]
        try:
            for path, reason in crashes_of(_locate_rows, shards).items():
                raise DamagedShard(f"HDF5 {reason}: {path.name}")
            return FeatureSet(self.work)
        except ShardError as error:
            raise RemoteError(
                f"{self._offer.remote.shown}: the files are verified but not a feature set "
                f"({error}); notify its publisher"
            ) from error

    def publish(self) -> None:
        """Move the received files to the output, the index last, and remove the work folder."""
        self.publish_encoder()
        self.out.mkdir(parents=True, exist_ok=True)
        files = self._offer.contents.descriptions if self._offer.contents else []
        described = [file.file for file in files if (self.work / file.file).is_file()]
        # The index last: a kill before it leaves shards for the next pull to verify.
        for name in [*(entry.file for entry in self._offer.index.shards), *described, INDEX_FILE]:
            (self.work / name).replace(self.out / name)
        self.remove_work()

    def remove_work(self) -> None:
        shutil.rmtree(self.work)

    def publish_encoder(self) -> None:
        """Move received encoder files to the encoder folder."""
        for file in self._offer.contents.encoder if self._offer.contents else ():
            path = self.work / _ENCODER_WORK / file.file
            if path.is_file():
                self.encoder.mkdir(exist_ok=True)
                path.replace(self.encoder / file.file)

    def _require_same_features(self) -> None:
        if is_view(self.out):
            raise OtherShard(
                f"{self.out} concatenates other features; choose another output folder"
            )
        current = _index_of(self.out)
        header = self._offer.index.header
        if current and (unlike := header.difference(current.header.metadata())):
            raise OtherShard(
                f"{self.out} {unlike}, as the set of {self._offer.remote.shown} has; choose "
                f"another output folder, or delete {self.out} if it is obsolete"
            )


def _locate_rows(path: Path) -> None:
    """Read the structure of a shard as all later readers do; called in a child process."""
    ShardFile(path)
    feature_spans(path)


def _index_of(folder: Path) -> FeatureIndex | None:
    return read_index(folder) if (folder / INDEX_FILE).is_file() else None


def _holds(path: Path, file: SharedFile) -> bool:
    return path.is_file() and sha256_of_file(path) == file.sha256
