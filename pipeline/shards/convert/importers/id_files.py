"""Row ids from a file of the user."""

from pathlib import Path

import msgspec

from pipeline.datasets.source import read_json, read_lines
from pipeline.shards.format import ShardError


class _Image(msgspec.Struct):
    filename: str | int = ""
    cocoid: int | str | None = None


class _Document(msgspec.Struct):
    images: list[_Image]


def read_ids(path: str | Path) -> list[str]:
    """Read ids, in the file's order; repeats are kept.

    Parameters
    ----------
    path : UTF-8 text with one id a line, or, ending in `.json`, a Karpathy `dataset.json`: the
        ids of its `images` as `pipeline.datasets.readers.karpathy` has them, which are `cocoid`
        or else `filename`.

    Raises
    ------
    DatasetError
        No such file, not UTF-8, not JSON, or not of that kind.
    ShardError
        A line is blank, or there is none.
    """
    path = Path(path)
    if path.suffix == ".json":
        images = read_json(path, _Document).images
        ids = [str(image.filename if image.cocoid is None else image.cocoid) for image in images]
    else:
        ids = []
        for number, line in read_lines(path):
            if not line.strip():
                raise ShardError(f"{path}, line {number} is blank; one id a line was expected")
            ids.append(line)
    if not ids:
        raise ShardError(f"{path} holds no id")
    return ids
