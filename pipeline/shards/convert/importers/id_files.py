"""Row ids from a file of the user."""

from pathlib import Path

from pipeline.datasets.source import member, read_json, read_lines
from pipeline.shards.format import ShardError


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
        ids = []
        for n, image in enumerate(member(read_json(path), "images", (list,), str(path))):
            key = "cocoid" if isinstance(image, dict) and "cocoid" in image else "filename"
            ids.append(str(member(image, key, (int, str), f"{path}: images[{n}]")))
    else:
        ids = []
        for number, line in read_lines(path):
            if not line.strip():
                raise ShardError(f"{path}, line {number} is blank; one id a line was expected")
            ids.append(line)
    if not ids:
        raise ShardError(f"{path} holds no id")
    return ids
