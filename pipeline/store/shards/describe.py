"""Summary of a feature set or a single shard, as text lines or JSON values."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.files import parse_json
from pipeline.store.hashing import canonical_json
from pipeline.store.objects.locate import open_remote
from pipeline.store.objects.urls import url_of
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import SOURCE_CRC32, ShardError, failures_of, trained_on_of
from pipeline.store.shards.layout import FEATURES, IDS, SHARD, SHARDS, STATUS, source_columns
from pipeline.store.shards.reader import ShardFile
from pipeline.store.shards.side_by_side import is_view, read_view
from pipeline.store.wording import counted

_REASONS_SHOWN = 5


@dataclass(frozen=True)
class _Contents:
    """A folder or a single shard."""

    rows: FeatureSet | ShardFile
    attributes: dict[str, Any]
    trained_on: tuple[str, ...]
    files: list[Path]

    @property
    def failures(self) -> list[tuple[str, str, str]]:
        """The id, status name and reason of each failed row."""
        return failures_of(self.rows)


def describe(path: str | Path) -> list[str]:
    """Return lines that describe the feature set or shard at `path`; text from data is not escaped.

    Features are not read: see `pipeline.store.shards.verify.verify`.

    Parameters
    ----------
    path : str or Path. A finished feature folder or its URL, or one shard.

    Raises
    ------
    ShardError

    Examples
    --------
    >>> for line in pipeline.describe("features/mine")[:3]:
    ...     print(line)
    features/mine: 3 rows in 1 shard, ...
    dataset
    features     (3, 3) float32, axes: row, channel
    """
    path = Path(path)
    contents = _contents_of(path)
    about, rows = contents.attributes, len(contents.rows.ids)
    shape, dtype = contents.rows.row_shape, contents.rows.dtype
    row_bytes = int(np.prod(shape)) * dtype.itemsize
    url, size = url_of(path), sum(map(_size, contents.files))
    what = "one shard" if path.is_file() else counted(len(contents.files), "shard")
    reading = reading_lines(str(contents.files[0]))
    if is_view(path):
        parts = [part.name for part in read_view(path).parts]
        what = f"{len(parts)} sets side by side ({', '.join(parts)})"
    if is_view(path) or url:
        named = url or str(path)
        reading = ["import pipeline", f"rows = pipeline.read_features({named!r}).read(ids)"]
    if SHARD in about:
        what += f", number {about[SHARD]} (from 0) of {about[SHARDS]}"
    return [
        f"{url or path}: {rows} rows in {what}, {size / 1e6:.1f} MB{'' if url else ' on disk'}",
        f"dataset      {about['dataset']}",
        f"features     {(rows, *shape)} {dtype}, axes: {about['axes']}",
        f"bytes        {row_bytes} per row, {rows * row_bytes} in total",
        f"format       version {about.get('format_version')}",
        *_source_lines(contents),
        f"failed rows  {len(contents.failures)}",
        *_failure_lines(contents),
        "",
        f"recipe hash  {about['recipe_hash']}",
        f"weights      {about['weights']}",
        f"             sha256 {about['weights_sha256']}",
        f"trained on   {', '.join(contents.trained_on) or 'not recorded'}",
        f"software     {about['created_by']}",
        "recipe",
        *_recipe_lines(about["recipe"]),
        "",
        "to read it:" if url or path.is_file() else f"to read {contents.files[0].name}:",
        *(f"    {line}" for line in reading),
    ]


def summary_of(path: str | Path) -> dict[str, Any]:
    """Return the summary of `describe` as JSON values, without the lines of Python."""
    path = Path(path)
    contents = _contents_of(path)
    about = contents.attributes
    return {
        "path": url_of(path) or str(path),
        "rows": len(contents.rows.ids),
        "failed_rows": len(contents.failures),
        "row_shape": list(contents.rows.row_shape),
        "dtype": str(contents.rows.dtype),
        "axes": about["axes"],
        "format_version": about.get("format_version"),
        "dataset": about["dataset"],
        "shards": len(contents.files),
        "bytes": sum(map(_size, contents.files)),
        "recipe": about["recipe"],
        "recipe_hash": about["recipe_hash"],
        "weights": about["weights"],
        "weights_sha256": about["weights_sha256"],
        "trained_on": list(contents.trained_on),
        "created_by": about["created_by"],
        "failures": [list(failure) for failure in contents.failures],
    }


def _contents_of(path: Path) -> _Contents:
    if url_of(path) is None and not path.exists():
        raise ShardError(f"{path} not found; name a folder of shards, or one shard")
    return _of_file(path) if path.is_file() else _of_folder(path)


def _size(file: Path) -> int:
    if (url := url_of(file)) is None:
        return file.stat().st_size
    folder, _, name = url.rpartition("/")
    return open_remote(folder).state(name)[0]


def reading_lines(file: str) -> list[str]:
    """Return three lines of Python that read a shard with h5py alone."""
    ids, status, features = (f'file["{name}"]' for name in (IDS, STATUS, FEATURES))
    return [
        "import h5py",
        f"file = h5py.File({file!r})",
        f"ids, ok, features = {ids}.asstr()[:], {status}[:] == 0, {features}",
    ]


def _of_folder(folder: Path) -> _Contents:
    features = FeatureSet(folder)
    header = features.index.header
    files = [folder / entry.file for entry in features.index.shards]
    return _Contents(
        features, header.attributes() | {"recipe": header.recipe}, header.trained_on, files
    )


def _of_file(path: Path) -> _Contents:
    shard = ShardFile(path)
    try:
        recipe = parse_json(shard.attributes["recipe"])
    except ValueError:
        recipe = {"not JSON": shard.attributes["recipe"]}
    try:
        trained_on = trained_on_of(shard.attributes)
    except ValueError as error:
        trained_on = (str(error),)
    return _Contents(shard, shard.attributes | {"recipe": recipe}, trained_on, [path])


def _source_lines(contents: _Contents) -> list[str]:
    lines = []
    for column in source_columns():
        known = int((contents.rows.sources[column.key] != column.fill).sum())
        named = "sources      CRC-32" if column.key == SOURCE_CRC32 else f"{column.key:<12}"
        if known or not column.optional:
            lines.append(f"{named} known of {known} of {len(contents.rows.ids)} rows")
    return lines


def _failure_lines(contents: _Contents) -> list[str]:
    counts = Counter(status for _, status, _ in contents.failures)
    lines = []
    for status, count in counts.items():
        shown = [failure for failure in contents.failures if failure[1] == status][:_REASONS_SHOWN]
        first = f", the first {len(shown)}" if count > len(shown) else ""
        lines.append(f"  {count} {status}{first}:")
        lines += [f"    {row_id}: {reason}" for row_id, _, reason in shown]
    return lines


def _recipe_lines(recipe: Any) -> list[str]:
    if not isinstance(recipe, dict):
        return [f"  {recipe}"]
    return [
        f"  {name}: {value if isinstance(value, str) else canonical_json(value)}"
        for name, value in sorted(recipe.items())
    ]
