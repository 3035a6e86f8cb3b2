"""Parquet files, read in batches of rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.columns import ColumnNames, find_columns
from pipeline.datasets.readers.tables.table import RowFault, Table
from pipeline.store.inner_files import open_file
from pipeline.store.objects.urls import shown, url_of

SUFFIXES = (".parquet", ".pq")

_ROWS, _ROWS_WITH_IMAGES = 4096, 32


def read_parquet(path: Path, stated: ColumnNames) -> Table:
    """Return the rows of a file; columns that cannot be metadata, such as vectors, are not read."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path if url_of(path) is None else open_file(path))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise DatasetError(
            f"{shown(path)} cannot be read as Parquet ({error}); check the file"
        ) from error
    schema = file.schema_arrow
    try:
        images = [field.name for field in schema if _is_image(field.type)]
        columns = find_columns(schema.names, stated, images)
    except RowFault as error:
        raise DatasetError(f"{path}: {error}") from None
    kind = schema.field(columns.path).type
    inside = pyarrow.types.is_nested(kind) or _is_binary(kind)
    ignored = {name for name in columns.others if not _is_metadata(schema.field(name).type)}
    used = [name for name in schema.names if name not in ignored]
    notes: dict[str, Any] = {"columns_ignored": sorted(ignored)} if ignored else {}

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            for batch in file.iter_batches(_ROWS_WITH_IMAGES if inside else _ROWS, columns=used):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise DatasetError(
                f"{path}, row {number + 1}: the file is corrupt ({error}); download it again"
            ) from error

    return Table(shown(path), "row", records(), notes=notes)


def _is_image(kind: Any) -> bool:
    """Return whether a column type is Hugging Face's struct of an image: its bytes and its path."""
    from pyarrow import types

    return types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}


def _is_binary(kind: Any) -> bool:
    from pyarrow import types

    tests = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _is_metadata(kind: Any) -> bool:
    """Return whether a column type can be metadata: plain values, or lists of texts."""
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    return not (_is_binary(kind) or types.is_nested(kind))
