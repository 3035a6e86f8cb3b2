"""Pushing: a finished feature folder is copied to another place, its index last."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from pipeline.progress import QUIET, Monitor, Progress
from pipeline.shards.card import CARD_FILE
from pipeline.shards.format import DamagedShard, ShardError
from pipeline.shards.index import INDEX_FILE, FeatureIndex, index_from, read_index
from pipeline.shards.remote.contents import (
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
from pipeline.shards.remote.locate import open_writable
from pipeline.shards.remote.remote import (
    ExchangeError,
    NotThere,
    Remote,
    WritableRemote,
    read_bounded,
    repeated,
)
from pipeline.shards.side_by_side import require_own_rows

_BLOCK = 1 << 20
_REMEDY = "push to another place, or remove what is there if it may go"


class _File(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def push(folder: str | Path, url: str | Path, *, monitor: Monitor = QUIET) -> Transfer:
    """Copy a finished feature folder to another place, where it is a feature folder too.

    First goes `files.json`, which says what will be there, then encoder and shards, then SHARDS.md,
    and `index.json` last: a place without it holds no finished set. A push that was stopped goes
    on: a file that `files.json` or `index.json` of the place names, and that is there in its size,
    is not sent again. The SHA-256 of every file is computed as it is sent and must be the one that
    it shall have; the size of what has arrived is looked at before it gets its name.

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
    ExchangeError
        The set is described by more bytes than a pull reads, or has changed meanwhile.
    ShardError
        The folder is no finished feature folder.
    """
    folder = Path(folder)
    require_own_rows(folder)
    index = read_index(folder)
    index_bytes = (folder / INDEX_FILE).read_bytes()
    for entry in index.shards:
        if not (folder / entry.file).is_file():
            raise DamagedShard(
                f"{folder / entry.file} is named in the index but missing; have it made again"
            )
    remote = open_writable(url)
    contents = contents_of(folder, index)
    description = contents.text().encode()
    _require_readable(folder, len(index_bytes), len(description))
    named_there = _files_named_there(remote, index, contents, monitor)
    if contents.card is None:
        monitor.log(
            f"no {CARD_FILE} in {folder}; `pipeline shards card` writes licence and citation"
        )
    sender = _Sender(monitor)
    places: list[tuple[WritableRemote, Path, SharedFile | SharedShard]] = [
        *((remote.beside(ENCODER_SUFFIX), encoder_of(folder), file) for file in contents.encoder),
        *((remote, folder, shard) for shard in contents.shards),
    ]
    there = [sender.size(place, file.file) for place, _, file in places]
    for (place, _, file), size in zip(places, there, strict=True):
        if size is not None and (file.file, file.sha256) not in named_there:
            _require_same_bytes(place, file, size, monitor)
    sender.send_small(remote, CONTENTS_FILE, description)
    waiting = [whole for whole, size in zip(places, there, strict=True) if whole[2].size != size]
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
        sender.send_small(remote, CARD_FILE, _unchanged(folder / CARD_FILE, contents.card))
    sender.send_small(remote, INDEX_FILE, index_bytes)
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

        repeated(lambda: remote.send(file.file, blocks()), self._monitor.log)

    def size(self, remote: WritableRemote, name: str) -> int | None:
        """Return the bytes of a file that is there, None if it is not."""
        return repeated(lambda: remote.size(name), self._monitor.log)

    def send_small(self, remote: WritableRemote, name: str, data: bytes) -> None:
        """Send a file unless the same bytes are there."""
        if _read_if_there(remote, name, self._monitor) == data:
            return
        repeated(lambda: remote.send(name, [data]), self._monitor.log)
        self.moved += len(data)


def _require_readable(folder: Path, *sizes: int) -> None:
    """Refuse a set with a description that no pull would read."""
    if max(sizes) > MOST_DESCRIPTION_BYTES:
        raise ExchangeError(
            f"{folder} needs an {INDEX_FILE} or a {CONTENTS_FILE} of {max(sizes):,} bytes, and no "
            f"pull reads more than {MOST_DESCRIPTION_BYTES:,}; share it as several sets, or with "
            "more rows in each shard"
        )


def _unchanged(path: Path, file: SharedFile) -> bytes:
    """Return the bytes of a small file, which must be those that were described."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise ExchangeError(f"{path} was changed just now; give the same command again")
    return data


def _files_named_there(
    remote: Remote, index: FeatureIndex, contents: Contents, monitor: Monitor
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of the files that the place says it holds, or waits for.

    Raises
    ------
    OtherSet
        They are files of another set, finished or not, or cannot be understood.
    """
    named: set[tuple[str, str]] = set()
    data = [_read_if_there(remote, name, monitor) for name in (INDEX_FILE, CONTENTS_FILE)]
    try:
        there = index_from(data[0], f"{remote.shown}/{INDEX_FILE}") if data[0] is not None else None
        begun = (
            contents_from(data[1], f"{remote.shown}/{CONTENTS_FILE}")
            if data[1] is not None
            else None
        )
    except ShardError as error:
        raise OtherSet(f"{error}; {_REMEDY}") from error
    if there:
        if unlike := index.header.difference(there.header.metadata()):
            raise OtherSet(f"{remote.shown} {unlike}; {_REMEDY}")
        named |= _same_files(remote, index.shards, there.shards)
    if begun:
        named |= _same_files(remote, contents.shards, begun.shards)
        named |= _same_files(remote, contents.encoder, begun.encoder)
    return named


def _require_same_bytes(
    remote: Remote, file: SharedFile | SharedShard, size: int, monitor: Monitor
) -> None:
    """Refuse a file that lies there, and that nothing there speaks of, unless it is the same."""

    def sha256() -> str:
        digest = hashlib.sha256()
        with closing(remote.read(file.file, 0, size)) as blocks:
            for block in blocks:
                digest.update(block)
        return digest.hexdigest()

    if size != file.size or repeated(sha256, monitor.log) != file.sha256:
        raise OtherSet(
            f"{remote.shown} holds a {file.file} that is not this set's, and neither {INDEX_FILE} "
            f"nor {CONTENTS_FILE} there says whose it is; {_REMEDY}"
        )


def _same_files(
    remote: Remote, ours: Sequence[_File], theirs: Sequence[_File]
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of their files, which must be among ours."""
    known = {(file.file, file.sha256) for file in ours}
    for file in theirs:
        if (file.file, file.sha256) not in known:
            raise OtherSet(
                f"{remote.shown} holds, or waits for, a {file.file} with the SHA-256 "
                f"{file.sha256[:16]}..., which is none of this set's files; {_REMEDY}"
            )
    return {(file.file, file.sha256) for file in theirs}


def _read_if_there(remote: Remote, name: str, monitor: Monitor) -> bytes | None:
    try:
        return read_bounded(remote, name, MOST_DESCRIPTION_BYTES, monitor.log)
    except NotThere:
        return None
