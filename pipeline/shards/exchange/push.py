"""Pushing: a finished feature folder is copied to another place, its index last."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pipeline.progress import QUIET, Monitor, Progress
from pipeline.shards.exchange.contents import (
    CONTENTS_FILE,
    ENCODER_SUFFIX,
    MOST_DESCRIPTION_BYTES,
    Contents,
    OtherSet,
    SharedFile,
    SharedShard,
    Transfer,
    contents_from,
    contents_of,
    encoder_of,
)
from pipeline.shards.exchange.locate import open_writable
from pipeline.shards.exchange.remote import (
    NotThere,
    PassingError,
    Patience,
    Remote,
    WritableRemote,
    read_bounded,
)
from pipeline.shards.format import DamagedShard
from pipeline.shards.index import INDEX_FILE, FeatureIndex, index_from, read_index
from pipeline.shards.side_by_side import require_own_rows
from pipeline.shards.tools.dataset_card import CARD_FILE

_BLOCK = 1 << 20


class _File(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def push(folder: str | Path, url: str | Path, *, monitor: Monitor = QUIET) -> Transfer:
    """Copy a finished feature folder to another place, where it is a feature folder too.

    First goes `files.json`, which says what will be there, then encoder and shards, then SHARDS.md,
    and `index.json` last: a place without it holds no finished set. A push that was stopped goes
    on: a shard that is there under its name, in its size, is not sent again. The SHA-256 of every
    shard is computed as it is sent and must be that of the index; the size of what has arrived is
    looked at before it gets its name.

    Parameters
    ----------
    folder : of the shards; `<folder>.encoder` beside it goes to `<url>.encoder`.
    url : a folder, `file://`, `dvc:REMOTE/PATH`, or any URL that fsspec can write to.
    monitor : gets the progress in bytes, and lines of what is sent.

    Returns
    -------
    Transfer
        Its `moved` is 0 if all was there.

    Raises
    ------
    OtherSet
        The place holds another set, or other shards under the same names. A set to which rows were
        added is the same set.
    DamagedShard
        A shard is not what its index says.
    RemoteError
        The place cannot be written to.
    ShardError
        The folder is no finished feature folder.
    """
    folder = Path(folder)
    require_own_rows(folder)
    index = read_index(folder)
    for entry in index.shards:
        if not (folder / entry.file).is_file():
            raise DamagedShard(
                f"{folder / entry.file} is named in the index but missing; have it made again"
            )
    remote = open_writable(url)
    contents = contents_of(folder, index)
    _require_same_set(remote, index, contents, monitor)
    if contents.card is None:
        monitor.log(
            f"no {CARD_FILE} in {folder}; `pipeline shards card` writes licence and citation"
        )
    sender = _Sender(monitor)
    sender.send_small(remote, CONTENTS_FILE, contents.text().encode())
    places: list[tuple[WritableRemote, Path, SharedFile | SharedShard]] = [
        *((remote.beside(ENCODER_SUFFIX), encoder_of(folder), file) for file in contents.encoder),
        *((remote, folder, shard) for shard in contents.shards),
    ]
    waiting = [place for place in places if place[0].size(place[2].file) != place[2].size]
    total = sum(file.size for _, _, file in places)
    done = total - sum(file.size for _, _, file in waiting)
    monitor.log(
        f"{remote.shown}: {len(places) - len(waiting)} of {len(places)} files are there, "
        f"{(total - done) / 1e6:.1f} of {total / 1e6:.1f} MB are sent"
    )
    with monitor.progress("push", "byte") as progress:
        for place, source, file in waiting:
            sender.send(place, source / file.file, file, done, total, progress)
            done += file.size
    if contents.card is not None:
        sender.send_small(remote, CARD_FILE, (folder / CARD_FILE).read_bytes())
    sender.send_small(remote, INDEX_FILE, (folder / INDEX_FILE).read_bytes())
    return Transfer(index, sender.moved, contents.size)


class _Sender:
    """Sends files, again where that may help, and counts bytes."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self.moved = monitor, 0

    def send(
        self,
        remote: WritableRemote,
        path: Path,
        file: SharedFile | SharedShard,
        done: int,
        total: int,
        progress: Progress,
    ) -> None:
        """Send a file whose SHA-256 is known; `done` of `total` bytes are there before it."""

        def blocks() -> Iterator[bytes]:
            digest, sent = hashlib.sha256(), 0
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
                    yield block
                    sent += len(block)
                    self.moved += len(block)
                    progress(done + sent, total, 0)
            if digest.hexdigest() != file.sha256:
                raise DamagedShard(
                    f"{path} has the SHA-256 {digest.hexdigest()}, not {file.sha256}: it was "
                    "damaged, or changed just now; `pipeline shards verify` says where, and the "
                    "command that made it makes it again"
                )

        patience = Patience(self._monitor.log)
        while True:
            try:
                remote.send(file.file, blocks())
                return
            except PassingError as error:
                patience.failed(error)

    def send_small(self, remote: WritableRemote, name: str, data: bytes) -> None:
        """Send a file unless the same bytes are there."""
        if _read_if_there(remote, name, self._monitor) == data:
            return
        patience = Patience(self._monitor.log)
        while True:
            try:
                remote.send(name, [data])
                self.moved += len(data)
                return
            except PassingError as error:
                patience.failed(error)


def _require_same_set(
    remote: Remote, index: FeatureIndex, contents: Contents, monitor: Monitor
) -> None:
    """Refuse a place with files of another set, finished or not."""
    remedy = "push to another place, or remove what is there if it may go"
    if (data := _read_if_there(remote, INDEX_FILE, monitor)) is not None:
        there = index_from(data, f"{remote.shown}/{INDEX_FILE}")
        if unlike := index.header.difference(there.header.metadata()):
            raise OtherSet(f"{remote.shown} {unlike}; {remedy}")
        _require_same_files(remote, index.shards, there.shards, remedy)
    if (data := _read_if_there(remote, CONTENTS_FILE, monitor)) is not None:
        begun = contents_from(data, f"{remote.shown}/{CONTENTS_FILE}")
        _require_same_files(remote, contents.shards, begun.shards, remedy)
        _require_same_files(remote, contents.encoder, begun.encoder, remedy)


def _require_same_files(
    remote: Remote, ours: Sequence[_File], theirs: Sequence[_File], remedy: str
) -> None:
    known = {(file.file, file.sha256) for file in ours}
    for file in theirs:
        if (file.file, file.sha256) not in known:
            raise OtherSet(
                f"{remote.shown} holds, or waits for, a {file.file} with the SHA-256 "
                f"{file.sha256[:16]}..., which is none of this set's files; {remedy}"
            )


def _read_if_there(remote: Remote, name: str, monitor: Monitor) -> bytes | None:
    try:
        return read_bounded(remote, name, MOST_DESCRIPTION_BYTES, monitor.log)
    except NotThere:
        return None
