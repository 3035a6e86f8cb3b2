"""Row ids: from a file, and as a prepared dataset has them."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers.tables.paths import PathResolver
from pipeline.datasets.readers.tables.table import RowFault
from pipeline.datasets.source import read_json, read_lines
from pipeline.store.convert.importers.tables import ids_of_table
from pipeline.store.shards.format import ShardError
from pipeline.store.wording import counted


class _Image(msgspec.Struct):
    filename: str | int = ""
    cocoid: int | str | None = None


class _Document(msgspec.Struct):
    images: list[_Image]


def read_ids(path: str | Path) -> list[str]:
    """Read ids in file order; repeats are kept.

    `path` is UTF-8 text with one id per line; or, ending in `.json`, a Karpathy `dataset.json`:
    `cocoid` or else `filename` of its `images`, as in `pipeline.datasets.readers.karpathy`; or,
    ending in `.parquet`, a table with a column of ids.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        ids = ids_of_table(path)
    elif path.suffix == ".json":
        images = read_json(path, _Document).images
        ids = [str(image.filename if image.cocoid is None else image.cocoid) for image in images]
    else:
        ids = []
        for number, line in read_lines(path):
            if not line.strip():
                raise ShardError(f"{path}, line {number} is blank, expected one id per line")
            ids.append(line)
    if not ids:
        raise ShardError(f"{path} has no ids")
    return ids


def ids_in(dataset: Manifest, ids: Sequence[str], log: Callable[[str], object]) -> list[str]:
    """Return ids with those of images in place of their files' paths; unknown ones are logged.

    Paths may be written in the variants that `prepare` reads.
    """
    known = {*dataset.packed.ids, *dataset.packed.captions.ids}
    by_file = dict(zip(dataset.packed.files, dataset.packed.ids, strict=True))
    paths = PathResolver(dataset.image_root, "image")
    found: list[str] = []
    others: list[str] = []
    for one in ids:
        if one not in known:
            try:
                one = by_file[paths.resolve(one)]
            except (RowFault, KeyError):
                others.append(one)
        found.append(one)
    if others:
        log(f"{len(others)} of {len(ids)} ids are not in {dataset.name}, first {others[:5]}")
    return found


def require_enough_captions(dataset: Manifest, ids: Sequence[str]) -> None:
    """Raise if an image has more rows than captions: the k-th row is not of the k-th caption."""
    rows, packed = Counter(ids), dataset.packed
    numbers = zip(packed.ids, packed.num_captions.tolist(), strict=True)
    others = [(one, number) for one, number in numbers if 0 < number < rows[one]]
    if others:
        image, number = others[0]
        raise ShardError(
            f"found {counted(len(others), 'image')} with fewer captions in {dataset.name} than "
            f"rows, first {image!r} with {number} and {rows[image]}; prepare the dataset from the "
            "table of these rows"
        )


def caption_ids(ids: Sequence[str]) -> list[str]:
    """Return `<id>#<k>` for the k-th row of each id, from 0."""
    before: Counter[str] = Counter()
    numbered = []
    for one in ids:
        numbered.append(f"{one}#{before[one]}")
        before[one] += 1
    return numbered
