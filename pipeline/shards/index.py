"""`index.json`: the attributes of a feature set once, and a line for each of its shards."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.canonical import write_json
from pipeline.shards.format import FORMAT, FORMAT_VERSION, FeatureHeader, ShardEntry, ShardError

INDEX_FILE = "index.json"


@dataclass(frozen=True)
class FeatureIndex:
    """A finished feature set.

    Attributes
    ----------
    header : what all shards have in common.
    rows_per_shard : rows of every shard but the last.
    shards : one entry a shard, in row order.
    """

    header: FeatureHeader
    rows_per_shard: int
    shards: tuple[ShardEntry, ...]

    @property
    def rows(self) -> int:
        """Number of rows in all shards."""
        return sum(s.rows for s in self.shards)

    @property
    def failed_rows(self) -> int:
        """Number of rows with a status other than 0."""
        return sum(s.failed_rows for s in self.shards)

    def write(self, folder: Path) -> None:
        """Write `index.json`, the done record of the whole set, into `folder`."""
        header = self.header
        write_json(
            folder / INDEX_FILE,
            {
                **header.attributes(),
                "recipe": header.recipe,
                "row_shape": list(header.row_shape),
                "dtype": header.dtype,
                "rows": self.rows,
                "failed_rows": self.failed_rows,
                "rows_per_shard": self.rows_per_shard,
                "shards": [asdict(s) for s in self.shards],
            },
        )


def read_index(folder: Path) -> FeatureIndex:
    """Read the `index.json` of a feature folder.

    Raises
    ------
    ShardError
        There is none, it is damaged or of another format, or it names files outside its folder.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        raise ShardError(
            f"{path} not found: {folder} is no finished feature folder; run `pipeline extract` or "
            "`pipeline text` (again: it goes on where it stopped)"
        )
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (facts["format"], facts["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(
                f"format {facts['format']!r} version {facts['format_version']!r}; this software "
                f"reads {FORMAT!r} version {FORMAT_VERSION}"
            )
        names = ("recipe", "weights", "weights_sha256", "axes", "dataset", "dtype", "created_by")
        header = FeatureHeader(
            row_shape=tuple(facts["row_shape"]), **{name: facts[name] for name in names}
        )
        if header.recipe_hash != facts["recipe_hash"]:
            raise ValueError("its recipe is not the one that its recipe_hash names")
        shards = tuple(ShardEntry(**entry) for entry in facts["shards"])
        for entry in shards:
            if Path(entry.file).name != entry.file:
                raise ValueError(f"file {entry.file!r} is not a plain file name")
        return FeatureIndex(header, facts["rows_per_shard"], shards)
    except (KeyError, TypeError, ValueError) as error:
        raise ShardError(f"{path} is damaged or of another kind ({error})") from error
