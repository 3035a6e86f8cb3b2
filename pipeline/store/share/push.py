"""Pushing: copying a finished feature folder to another location, index last."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.store.objects.locate import open_writable
from pipeline.store.objects.remote import Remote
from pipeline.store.objects.retried import MOST_DESCRIPTION_BYTES, read_bounded
from pipeline.store.objects.retry import RemoteError, retry
from pipeline.store.progress import QUIET, Monitor
from pipeline.store.shards.format import DamagedShard, ShardEntry, ShardError
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, index_from, read_index
from pipeline.store.shards.side_by_side import require_own_rows
from pipeline.store.share.cards.card import CARD_FILE
from pipeline.store.share.contents import (
    CONTENTS_FILE,
    ENCODER_SUFFIX,
    Contents,
    SharedFile,
    SharedShard,
    contents_from,
    contents_of,
    encoder_of,
)
from pipeline.store.share.meter import Meter, Transfer

_BLOCK = 1 << 20
_REMEDY = "push to another URL, or delete the remote files if they are obsolete"


def push(folder: str | Path, url: str | Path, *, monitor: Monitor = QUIET) -> Transfer:
    """Copy a finished feature folder to a remote folder.

    `files.json` is sent first, since it lists the expected files, then encoder and shards, then
    SHARDS.md and croissant.json, and `index.json` last: a folder without it is not a finished set.
    An interrupted push resumes: a remote file of the right size that `files.json` or `index.json`
    lists is not sent again. The SHA-256 of every file is verified while it is sent.

    Parameters
    ----------
    folder : str or Path. Folder of the shards; `<folder>.encoder` is copied to `<url>.encoder`.
    url : str or Path. A folder, `file://`, `dvc:REMOTE/PATH`, or any URL that fsspec can write to.
    monitor : Monitor. Receives the progress in bytes, and log lines of transfers.

    Returns
    -------
    Transfer
        `moved` is 0 if all files existed.

    Raises
    ------
    RemoteError
        The remote folder is not writable, or holds another set (an extended set is the same set);
        the description exceeds the size limit of a pull, or the set changed during the push.
    ShardError
        The folder is not a finished feature folder, or a shard differs from its index.

    Examples
    --------
    >>> pipeline.push("features/mine", "shared/mine").index.rows
    3
    """
    folder, meter = Path(folder), Meter(monitor)
    require_own_rows(folder)
    index = read_index(folder)
    index_bytes = (folder / INDEX_FILE).read_bytes()
    for entry in index.shards:
        if not (folder / entry.file).is_file():
            raise DamagedShard(
                f"{folder / entry.file} is listed in the index but missing; recompute it"
            )
    remote = open_writable(url)
    contents = contents_of(folder, index)
    description = contents.text().encode()
    _require_readable(folder, len(index_bytes), len(description))
    listed = _files_named_there(remote, index, contents, meter)
    if contents.card is None:
        meter.log(f"no {CARD_FILE} in {folder}; `pipeline shards card` writes licence and citation")
    files: list[tuple[Remote, Path, SharedFile | SharedShard]] = [
        *((remote.sibling(ENCODER_SUFFIX), encoder_of(folder), file) for file in contents.encoder),
        *((remote, folder, shard) for shard in contents.shards),
    ]
    missing = [file for file in files if not _exists(file[0], file[2], listed, meter)]
    _send_small(remote, CONTENTS_FILE, description, meter)
    total = sum(file.size for _, _, file in missing)
    meter.log(
        f"{remote.shown}: {len(files) - len(missing)} of {len(files)} files exist, "
        f"{total / 1e6:.1f} of {sum(file.size for *_, file in files) / 1e6:.1f} MB will be sent"
    )
    with meter.expecting("push", total):
        for target, source, file in missing:
            _send(target, source / file.file, file.sha256, meter)
    for file in contents.descriptions:
        _send_small(remote, file.file, _unchanged(folder / file.file, file), meter)
    _send_small(remote, INDEX_FILE, index_bytes, meter)
    return Transfer(index, meter.moved, contents.size)


def _send(remote: Remote, path: Path, sha256: str, meter: Meter) -> None:
    """Send a file of known SHA-256 under its own name."""

    def blocks() -> Iterator[bytes]:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                yield block
                meter.add(len(block))
        # Raised before the remote part is renamed, so that a corrupt shard is never published.
        if digest.hexdigest() != sha256:
            raise DamagedShard(
                f"{path} has the SHA-256 {digest.hexdigest()}, expected {sha256}: it is corrupt or "
                "was just changed; `pipeline shards verify` locates the defect, and the command "
                "that wrote the file recomputes it"
            )

    retry(lambda: remote.send(path.name, blocks()), meter.log)


def _send_small(remote: Remote, name: str, data: bytes, meter: Meter) -> None:
    """Send a file unless the same bytes exist remotely."""
    if read_bounded(remote, name, MOST_DESCRIPTION_BYTES, meter.log) != data:
        retry(lambda: remote.send(name, [data]), meter.log)
        meter.add(len(data))


def _exists(
    remote: Remote, file: SharedFile | SharedShard, listed: set[tuple[str, str]], meter: Meter
) -> bool:
    """Return whether a remote file exists with the right size; raise if it is another file."""

    def sha256() -> str:
        digest = hashlib.sha256()

        def add(block: bytes) -> bool:
            digest.update(block)
            return True

        remote.read(file.file, add)
        return digest.hexdigest()

    # `send` renames only complete files, so a listed file of the right size is the same one.
    size = retry(lambda: remote.size(file.file), meter.log)
    if size is None or (file.file, file.sha256) in listed:
        return size == file.size
    if size != file.size or retry(sha256, meter.log) != file.sha256:
        raise RemoteError(
            f"{remote.shown} holds a {file.file} of another set, which neither {INDEX_FILE} nor "
            f"{CONTENTS_FILE} there lists; {_REMEDY}"
        )
    return True


def _require_readable(folder: Path, *sizes: int) -> None:
    """Raise if the description of a set exceeds the size limit of a pull."""
    if max(sizes) > MOST_DESCRIPTION_BYTES:
        raise RemoteError(
            f"{folder} needs an {INDEX_FILE} or {CONTENTS_FILE} of {max(sizes):,} bytes; a pull "
            f"reads at most {MOST_DESCRIPTION_BYTES:,}: share it as several sets, or with more "
            "rows per shard"
        )


def _unchanged(path: Path, file: SharedFile) -> bytes:
    """Return the bytes of a small file; raise if it changed after it was described."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise RemoteError(f"{path} was just changed; rerun the command")
    return data


def _files_named_there(
    remote: Remote, index: FeatureIndex, contents: Contents, meter: Meter
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of the files that the remote index and `files.json` list."""
    named: set[tuple[str, str]] = set()
    described, begun = (
        read_bounded(remote, name, MOST_DESCRIPTION_BYTES, meter.log)
        for name in (INDEX_FILE, CONTENTS_FILE)
    )
    try:
        if described is not None:
            there = index_from(described, f"{remote.shown}/{INDEX_FILE}")
            if unlike := index.header.difference(there.header.metadata()):
                raise RemoteError(f"{remote.shown} {unlike}")
            named |= _same_files(remote, index.shards, there.shards)
        if begun is not None:
            files = contents_from(begun, f"{remote.shown}/{CONTENTS_FILE}")
            named |= _same_files(remote, contents.shards, files.shards)
            named |= _same_files(remote, contents.encoder, files.encoder)
    except (ShardError, RemoteError) as error:
        raise RemoteError(f"{error}; {_REMEDY}") from error
    return named


def _same_files(
    remote: Remote,
    ours: Sequence[ShardEntry | SharedFile | SharedShard],
    theirs: Sequence[ShardEntry | SharedFile | SharedShard],
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of the remote files; raise unless they are among ours."""
    expected = {(file.file, file.sha256) for file in ours}
    for file in theirs:
        if (file.file, file.sha256) not in expected:
            raise RemoteError(
                f"{remote.shown} holds or expects a {file.file} with the SHA-256 "
                f"{file.sha256[:16]}..., which is not a file of this set"
            )
    return {(file.file, file.sha256) for file in theirs}
