"""Verification of a feature folder against its index, or of a single shard."""

import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.datasets.manifest import Manifest, read_manifest
from pipeline.store.files import parse_json
from pipeline.store.hashing import canonical_json, recipe_hash, sha256_of_file
from pipeline.store.inner_files import UnusablePart, bytes_of, outer_file
from pipeline.store.objects.urls import url_of
from pipeline.store.packed import PackedTexts, TextIndex, repeated_texts
from pipeline.store.progress import QUIET, Monitor, Progress
from pipeline.store.shards.faults import Fault, Verification
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import (
    OK,
    STATUS_NAMES,
    VERSIONS,
    DamagedShard,
    ShardError,
)
from pipeline.store.shards.index import INDEX_FILE, FeatureIndex, read_index
from pipeline.store.shards.layout import ROWS, SHARD, SHARDS
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.sandbox import find_crashing_files
from pipeline.store.shards.side_by_side import VIEW_FILE, is_view, read_view

SourceCrc = Callable[[str], int | None]


def verify(
    path: str | Path,
    *,
    quick: bool = False,
    images_of: str | Path | None = None,
    monitor: Monitor = QUIET,
) -> Verification:
    """Verify a feature folder or a shard, and list every defect.

    Parameters
    ----------
    path : str or Path. A folder of shards; its URL, for which rows are checked but not the SHA-256
        of the files; or one shard, which is checked against the index in its folder, if listed
        there.
    quick : bool. Check structure, ids, counts and sizes; do not read features and checksums.
    images_of : str, Path or None. Dataset folder: compare `source_crc32` with the CRC-32 of its
        current image files or captions.
    monitor : Monitor. Receives the progress; the defects so far count as failed rows.

    Raises
    ------
    ShardError
        `path` does not exist, or the operating system refuses a read.

    Examples
    --------
    >>> found = pipeline.verify("features/mine")
    >>> found.rows, found.faults
    (3, [])
    """
    path = Path(path)
    source_crc = source_crc_of(read_manifest(Path(images_of))) if images_of else None
    if url_of(path) is None and not path.exists():
        raise ShardError(f"{path} not found; name a folder of shards, or one shard")
    with monitor.progress("verify", "row") as progress:
        if is_view(path):
            return _verified_view(path, quick, source_crc, progress)
        return _verified(path, quick, source_crc, progress)


def _verified_view(
    path: Path, quick: bool, source_crc: SourceCrc | None, progress: Progress
) -> Verification:
    """Verify the parts of a view, and the view against them."""
    result = Verification(quick, sources=None if source_crc is None else 0)
    try:
        parts = read_view(path).parts
    except ShardError as error:
        result.faults.append(Fault(VIEW_FILE, str(error)))
        return result
    for part in parts:
        checked = _verified(part, quick, source_crc, progress)
        result.rows += checked.rows
        result.indexed = checked.indexed
        if checked.sources is not None:
            result.sources = (result.sources or 0) + checked.sources
        result.faults += [replace(f, file=f"{part.name}/{f.file}") for f in checked.faults]
    if not result.faults:
        try:
            FeatureSet(path)
        except ShardError as error:
            result.faults.append(Fault(VIEW_FILE, str(error)))
    return result


def _verified(
    path: Path, quick: bool, source_crc: SourceCrc | None, progress: Progress
) -> Verification:
    result = Verification(quick, sources=None if source_crc is None else 0)
    remote = url_of(path) is not None
    is_folder = remote or path.is_dir()
    index: FeatureIndex | None
    if remote:
        index = read_index(path)
    else:
        index = _index(path if is_folder else path.parent, result.faults)
    named = {entry.file: number for number, entry in enumerate(index.shards)} if index else {}
    if is_folder:
        result.faults += [] if remote else _folder_faults(path, named)
        files = [path / name for name in named] or sorted(path.glob("shard-*.h5"))
    else:
        files, result.faults = [path], []
    total = index.rows if index and is_folder else 0
    result.indexed = all(file.name in named for file in files)
    ids: list[tuple[str, Sequence[str]]] = []

    def count(rows: int) -> None:
        result.rows += rows
        progress(result.rows, max(total, result.rows), len(result.faults))

    # Files are opened here only after a child has survived them, or their SHA-256 is in the index:
    # one that HDF5 crashes on would end the check.
    unvouched = [file for file in files if (quick or file.name not in named) and file.is_file()]
    broken = find_crashing_files(unvouched, features=not quick)
    for file in files:
        number = named.get(file.name) if index else None
        entry = index.shards[number] if index and number is not None else None
        if not (remote or file.is_file()):
            result.faults.append(Fault(file.name, "listed in the index but missing; copy it again"))
            continue
        if entry and not (quick or remote) and sha256_of_file(file) != entry.sha256:
            # This also covers bytes outside the rows.
            result.faults.append(Fault(file.name, "SHA-256 of the file differs; copy it again"))
            broken |= find_crashing_files([file], features=True)
        if file in broken:
            result.faults.append(Fault(file.name, broken[file]))
            continue
        try:
            shard = ShardFile(file, entry.sha256 if entry else "")
        except DamagedShard as error:
            result.faults.append(Fault(file.name, _without_path(error, file)))
            continue
        result.faults += _metadata_faults(shard)
        ids.append((file.name, shard.ids))
        if index and number is not None:
            result.faults += _index_faults(shard, index, number)
        if source_crc:
            faults, compared = _source_faults(shard, source_crc)
            result.faults += faults
            result.sources = (result.sources or 0) + compared
        if quick:
            count(shard.rows)
            continue
        faults, content = _row_faults(shard, count)
        result.faults += faults
        if entry and content != entry.content_sha256:
            result.faults.append(Fault(file.name, "SHA-256 of the content differs"))
    result.faults += _repeated_ids(ids)
    return result


def _row_fault(shard: ShardFile, row: int, text: str) -> Fault:
    """Return a defect of one row, with its id."""
    return Fault(shard.path.name, text, int(row), shard.ids[row])


def _metadata_faults(shard: ShardFile) -> Iterator[Fault]:
    """Check a shard's attributes for consistency: recipe and hash, row count, status."""
    name, about = shard.path.name, shard.attributes
    if (version := about.get("format_version")) not in VERSIONS:
        known = " or ".join(map(str, VERSIONS))
        yield Fault(name, f"format version {version!r}, expected {known}")
    try:
        recipe = parse_json(about["recipe"])
        named = recipe_hash(recipe, about["weights_sha256"])
        if canonical_json(recipe) != about["recipe"]:
            yield Fault(name, "its recipe is not canonical JSON")
        if named != about["recipe_hash"]:
            yield Fault(
                name,
                f"recipe_hash {about['recipe_hash']!r}; recipe and weights hash to {named!r}",
            )
    except (ValueError, TypeError) as error:
        yield Fault(name, f"its recipe is not JSON ({error})")
    if about.get(ROWS) != shard.rows:
        yield Fault(name, f"records {about.get(ROWS)!r} rows but holds {shard.rows}")
    for row in range(shard.rows):
        status, reason = int(shard.status[row]), shard.errors[row]
        if status not in STATUS_NAMES:
            yield _row_fault(shard, row, f"status {status}, expected one of {sorted(STATUS_NAMES)}")
        elif (status != OK) != bool(reason):
            yield _row_fault(
                shard, row, f"status {STATUS_NAMES[status]} with error text {reason!r}"
            )


def _index_faults(shard: ShardFile, index: FeatureIndex, number: int) -> Iterator[Fault]:
    """Compare a shard with entry `number` of its set's index."""
    name, header, entry = shard.path.name, index.header, index.shards[number]
    expected = header.attributes() | {SHARD: number}
    expected["created_by"] = entry.created_by or header.created_by
    expected.pop("trained_on", None)  # the index may know more, see `publish`
    with suppress(ShardError):  # reported as a defect of the index
        expected[SHARDS] = index.plan().counts[number]
    for key, value in expected.items():
        if shard.attributes.get(key) != value:
            yield Fault(name, f"{key} is {shard.attributes.get(key)!r}, in the index {value!r}")
    failed = int((shard.status != OK).sum())
    for what, here, there in (
        ("row shape", shard.row_shape, header.row_shape),
        ("type", shard.dtype.name, header.dtype),
        ("rows", shard.rows, entry.rows),
        ("failed rows", failed, entry.failed_rows),
    ):
        if here != there:
            yield Fault(name, f"{what}: {here} in the file, {there} in the index")


def _row_faults(shard: ShardFile, count: Callable[[int], None]) -> tuple[list[Fault], str]:
    """Compare each row with its CRC-32, and NaN with its status; `count` receives the rows read.

    Also returns the SHA-256 of the content, with zeros for unreadable rows.
    """
    faults: list[Fault] = []
    content = shard.content_hash()
    for rows in shard.spans():
        try:
            stored = shard.stored(rows)
        except DamagedShard:
            stored = np.zeros((len(rows), *shard.row_shape), shard.dtype)
            for position, row in enumerate(rows):
                try:
                    stored[position] = shard.stored(rows[position : position + 1])[0]
                except DamagedShard as error:
                    faults.append(_row_fault(shard, row, f"unreadable ({error.__cause__})"))
        nan = np.isnan(stored.reshape(len(rows), -1)).any(axis=1)
        for position, row in enumerate(rows):
            if zlib.crc32(stored[position]) != shard.crc32[row]:
                faults.append(_row_fault(shard, row, "corrupt (CRC-32 differs)"))
            if nan[position] != (shard.status[row] != OK):
                faults.append(
                    _row_fault(shard, row, "holds NaN" if nan[position] else "failed, but not NaN")
                )
        content.update(stored.tobytes())
        count(len(rows))
    return faults, content.hexdigest()


def _source_faults(shard: ShardFile, source_crc: SourceCrc) -> tuple[list[Fault], int]:
    """Compare the known `source_crc32` with the current sources; also return how many there are."""
    faults = []
    rows = np.flatnonzero(shard.source_crc32).tolist()
    for row in rows:
        now = source_crc(shard.ids[row])
        if now is None:
            faults.append(_row_fault(shard, row, "its image file or caption no longer exists"))
        elif now != shard.source_crc32[row]:
            faults.append(_row_fault(shard, row, "its image or caption has changed since"))
    return faults, len(rows)


def source_crc_of(dataset: Manifest) -> SourceCrc:
    """Return a function from an id to the CRC-32 of its current image file or caption text."""
    # None for unknown ids and missing images.
    captions, files = dataset.captions(), dataset.select().files
    image_of, caption_of = TextIndex(dataset.select().ids), TextIndex(captions.ids)

    def crc(row_id: str) -> int | None:
        if (image := int(image_of.rows_of([row_id], 1)[0])) >= 0:
            path = dataset.image_root / files[image]
            with suppress(UnusablePart, FileNotFoundError):
                there = url_of(path) or Path(outer_file(path)).is_file()
                return zlib.crc32(bytes_of(path)) if there else None
            return None
        caption = int(caption_of.rows_of([row_id], 1)[0])
        return zlib.crc32(captions.texts[caption].encode()) if caption >= 0 else None

    return crc


def _index(folder: Path, faults: list[Fault]) -> FeatureIndex | None:
    """Return the index if it is usable; append its defects to `faults`."""
    path = folder / INDEX_FILE
    remedy = "`pipeline shards index` rebuilds it from valid shards"
    if not path.is_file():
        faults.append(Fault(INDEX_FILE, f"missing: unfinished, or lost; {remedy}"))
        return None
    try:
        index = read_index(folder)
    except ShardError as error:
        faults.append(Fault(INDEX_FILE, f"{_without_path(error, path)}; {remedy}"))
        return None
    try:
        index.plan()
    except ShardError as error:
        faults.append(Fault(INDEX_FILE, f"{error}; {remedy}"))
    return index


def _folder_faults(folder: Path, named: Container[str]) -> Iterator[Fault]:
    """Yield unexpected contents of a feature folder."""
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".part"):
            yield Fault(path.name, "left over by an interrupted run; it can be deleted")
        elif named and path.suffix == ".h5" and path.name not in named:
            yield Fault(path.name, "a shard that is not in the index")
    if not any(folder.glob("shard-*.h5")):
        yield Fault(folder.name, "no shard in this folder")


def _repeated_ids(shards: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Fault]:
    """Yield ids with more than one row, in shards given as (file name, ids)."""
    repeated = {*repeated_texts(PackedTexts(row_id for _, ids in shards for row_id in ids))}
    first: dict[str, tuple[str, int]] = {}
    for file, ids in shards if repeated else ():
        for row, row_id in enumerate(ids):
            if row_id not in repeated:
                continue
            if row_id in first:
                text = "duplicate id, first in {}, row {}".format(*first[row_id])
                yield Fault(file, text, row, row_id)
            first.setdefault(row_id, (file, row))


def _without_path(error: ShardError, path: Path) -> str:
    return str(error).removeprefix(str(path)).lstrip(": ")
