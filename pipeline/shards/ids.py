"""Lists of ids from files of the user: one id a line, or the images of a Karpathy split file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pipeline.datasets.manifest import check_relative
from pipeline.datasets.source import member, read_json, read_lines
from pipeline.shards.format import ShardError


def read_ids(path: Path) -> list[str]:
    """Read ids, in the file's order; repeats are kept.

    Parameters
    ----------
    path : UTF-8 text with one id a line, or, ending in `.json`, a Karpathy `dataset.json`: the
        ids of its `images` as `pipeline prepare karpathy` gives them, which are `cocoid` or else
        `filename`.

    Raises
    ------
    DatasetError
        No such file, not UTF-8, not JSON, or not of that kind.
    ShardError
        A line is blank, or there is none.
    """
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


def require_usable_ids(ids: Sequence[str], where: str) -> None:
    """Check that ids are unique and fit to be ids of a dataset.

    Raises
    ------
    ShardError
        Repeated ids, or ids that could not be file names below a folder.
    """
    repeated = [one for one, count in Counter(ids).items() if count > 1]
    if repeated:
        raise ShardError(
            f"{where}: {len(repeated)} ids occur more than once, first {repeated[:5]}; every row "
            "needs an id of its own"
        )
    for row, one in enumerate(ids):
        if fault := check_relative(one):
            raise ShardError(f"{where}: id {one!r} of row {row} {fault}; ids are relative paths")
