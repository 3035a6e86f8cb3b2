"""Parquet files, read in batches of rows."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.columns import Columns
from pipeline.datasets.readers.tables.table import RowFault, Table

SUFFIXES = (".parquet", ".pq")

_ROWS, _ROWS_WITH_IMAGES = 4096, 32


def read_parquet(path: Path, find_columns: Callable[[Sequence[str]], Columns]) -> Table:
    """Return the rows of a file; columns that cannot be metadata, such as vectors, are not read."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise DatasetError(f"{path} cannot be read as Parquet ({error}); check the file") from error
    schema = file.schema_arrow
    try:
        columns = find_columns(schema.names)
    except RowFault as error:
        raise DatasetError(f"{path}: {error}") from None
    # A struct is an image in Hugging Face's format: its bytes and original path.
    kind = schema.field(columns.path).type
    size = _ROWS_WITH_IMAGES if pyarrow.types.is_nested(kind) else _ROWS
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        size = _ROWS_WITH_IMAGES
    ignored = {name for name in columns.others if not _is_metadata(schema.field(name).type)}
    used = [name for name in schema.names if name not in ignored]
    notes: dict[str, Any] = {"columns_ignored": sorted(ignored)} if ignored else {}

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=size, columns=used):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise DatasetError(
                f"{path}, row {number + 1}: the file is corrupt ({error}); download it again"
            ) from error

    return Table(str(path), "row", records(), notes=notes)


def _is_metadata(kind: Any) -> bool:
    """Return whether a column type can be metadata: plain values, or lists of texts."""
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
        return bool(types.is_string(kind) or types.is_large_string(kind))
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return not (binary or types.is_nested(kind) or types.is_fixed_size_binary(kind))
