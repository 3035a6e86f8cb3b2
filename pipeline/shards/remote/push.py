"""Pushing: a finished feature folder is copied to another place, its index last."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from pipeline.progress import QUIET, Monitor
from pipeline.shards.cards.card import CARD_FILE
from pipeline.shards.format import DamagedShard, ShardEntry, ShardError
from pipeline.shards.index import INDEX_FILE, FeatureIndex, index_from, read_index
from pipeline.shards.remote.contents import (
    CONTENTS_FILE,
    ENCODER_SUFFIX,
    MOST_DESCRIPTION_BYTES,
    Contents,
    OtherSet,
    SharedFile,
    SharedShard,
    contents_from,
    contents_of,
    encoder_of,
)
from pipeline.shards.remote.locate import open_writable
from pipeline.shards.remote.meter import Meter, Transfer
from pipeline.shards.remote.remote import Remote, read_bounded
from pipeline.shards.remote.retry import ExchangeError, retry
from pipeline.shards.side_by_side import require_own_rows

_BLOCK = 1 << 20
_REMEDY = "push to another place, or remove what is there if it may go"


def push(folder: str | Path, url: str | Path, *, monitor: Monitor = QUIET) -> Transfer:
    """Copy a finished feature folder to another place, where it is a feature folder too.

    `files.json`, which lists the files to come, is sent first, then encoder and shards, then
    SHARDS.md and croissant.json, and `index.json` last: a place without it holds no finished set.
    An interrupted push resumes: a file that `files.json` or `index.json` of the place names, and
    that exists there in its size, is not sent again. The SHA-256 of every file is computed and
    compared as it is sent;
    the size of what has arrived is compared before it is renamed to its final name.

    Parameters
    ----------
    folder : str or Path. Of the shards; `<folder>.encoder` next to it is copied to `<url>.encoder`.
    url : str or Path. A folder, `file://`, `dvc:REMOTE/PATH`, or any URL that fsspec can write to.
    monitor : Monitor. Shows the progress in bytes, and lines of what is sent.

    Returns
    -------
    Transfer
        Its `moved` is 0 if all files existed.

    Raises
    ------
    OtherSet
        The place holds another set, or other shards under the same names. A set to which rows were
        added is the same set.
    DamagedShard
        A shard differs from its index.
    RemoteError
        The place cannot be written to.
    ExchangeError
        The set is described by more bytes than a pull reads, or has changed meanwhile.
    ShardError
        The folder is not a finished feature folder.
    """
    folder, meter = Path(folder), Meter(monitor)
    require_own_rows(folder)
    index = read_index(folder)
    index_bytes = (folder / INDEX_FILE).read_bytes()
    for entry in index.shards:
        if not (folder / entry.file).is_file():
            raise DamagedShard(
                f"{folder / entry.file} is named in the index but missing; have it recomputed"
            )
    remote = open_writable(url)
    contents = contents_of(folder, index)
    description = contents.text().encode()
    _require_readable(folder, len(index_bytes), len(description))
    known = _files_named_there(remote, index, contents, meter)
    if contents.card is None:
        meter.log(f"no {CARD_FILE} in {folder}; `pipeline shards card` writes licence and citation")
    files: list[tuple[Remote, Path, SharedFile | SharedShard]] = [
        *((remote.sibling(ENCODER_SUFFIX), encoder_of(folder), file) for file in contents.encoder),
        *((remote, folder, shard) for shard in contents.shards),
    ]
    missing = [file for file in files if not _exists(file[0], file[2], known, meter)]
    _send_small(remote, CONTENTS_FILE, description, meter)
    total = sum(file.size for _, _, file in missing)
    meter.log(
        f"{remote.shown}: {len(files) - len(missing)} of {len(files)} files exist, "
        f"{total / 1e6:.1f} of {sum(file.size for *_, file in files) / 1e6:.1f} MB will be sent"
    )
    with meter.expecting("push", total):
        for place, source, file in missing:
            _send(place, source / file.file, file.sha256, meter)
    for file in contents.descriptions:
        _send_small(remote, file.file, _unchanged(folder / file.file, file), meter)
    _send_small(remote, INDEX_FILE, index_bytes, meter)
    return Transfer(index, meter.moved, contents.size)


def _send(remote: Remote, path: Path, sha256: str, meter: Meter) -> None:
    """Send a file whose SHA-256 is known, under its own name."""

    def blocks() -> Iterator[bytes]:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                yield block
                meter.add(len(block))
        if digest.hexdigest() != sha256:
            raise DamagedShard(
                f"{path} has the SHA-256 {digest.hexdigest()}, not {sha256}: it was damaged, or "
                "changed just now; `pipeline shards verify` names the damage, and the command "
                "that computed the file recomputes it"
            )

    retry(lambda: remote.send(path.name, blocks()), meter.log)


def _send_small(remote: Remote, name: str, data: bytes, meter: Meter) -> None:
    """Send a file unless the same bytes exist."""
    if read_bounded(remote, name, MOST_DESCRIPTION_BYTES, meter.log) != data:
        retry(lambda: remote.send(name, [data]), meter.log)
        meter.add(len(data))


def _exists(
    remote: Remote, file: SharedFile | SharedShard, known: set[tuple[str, str]], meter: Meter
) -> bool:
    """Return whether a file exists in its size.

    Raises
    ------
    OtherSet
        Another file has its name, and is not `known` as an unfinished copy of it.
    """

    def sha256() -> str:
        digest = hashlib.sha256()
        with closing(remote.read(file.file)) as blocks:
            for block in blocks:
                digest.update(block)
        return digest.hexdigest()

    size = retry(lambda: remote.size(file.file), meter.log)
    if size is None or (file.file, file.sha256) in known:
        return size == file.size
    if size != file.size or retry(sha256, meter.log) != file.sha256:
        raise OtherSet(
            f"{remote.shown} holds a {file.file} that is not this set's, and neither {INDEX_FILE} "
            f"nor {CONTENTS_FILE} there names it; {_REMEDY}"
        )
    return True


def _require_readable(folder: Path, *sizes: int) -> None:
    """Refuse a set whose description no pull would read."""
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
        raise ExchangeError(f"{path} was changed just now; run the same command again")
    return data


def _files_named_there(
    remote: Remote, index: FeatureIndex, contents: Contents, meter: Meter
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of the files that the remote index and `files.json` name.

    Raises
    ------
    OtherSet
        They name files of another set, finished or not, or cannot be parsed.
    """
    named: set[tuple[str, str]] = set()
    described, begun = (
        read_bounded(remote, name, MOST_DESCRIPTION_BYTES, meter.log)
        for name in (INDEX_FILE, CONTENTS_FILE)
    )
    try:
        if described is not None:
            there = index_from(described, f"{remote.shown}/{INDEX_FILE}")
            if unlike := index.header.difference(there.header.metadata()):
                raise OtherSet(f"{remote.shown} {unlike}")
            named |= _same_files(remote, index.shards, there.shards)
        if begun is not None:
            files = contents_from(begun, f"{remote.shown}/{CONTENTS_FILE}")
            named |= _same_files(remote, contents.shards, files.shards)
            named |= _same_files(remote, contents.encoder, files.encoder)
    except ShardError as error:
        raise OtherSet(f"{error}; {_REMEDY}") from error
    return named


def _same_files(
    remote: Remote,
    ours: Sequence[ShardEntry | SharedFile | SharedShard],
    theirs: Sequence[ShardEntry | SharedFile | SharedShard],
) -> set[tuple[str, str]]:
    """Return name and SHA-256 of their files, which must be among ours."""
    known = {(file.file, file.sha256) for file in ours}
    for file in theirs:
        if (file.file, file.sha256) not in known:
            raise OtherSet(
                f"{remote.shown} holds, or expects, a {file.file} with the SHA-256 "
                f"{file.sha256[:16]}..., which is none of this set's files"
            )
    return {(file.file, file.sha256) for file in theirs}
