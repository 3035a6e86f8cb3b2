"""Row ids from a file."""

from pathlib import Path

import msgspec

from pipeline.datasets.source import read_json, read_lines
from pipeline.store.convert.importers.tables import ids_of_table
from pipeline.store.shards.format import ShardError


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
