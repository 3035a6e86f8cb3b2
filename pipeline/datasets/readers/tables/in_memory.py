"""Tables in memory: pandas DataFrames, Hugging Face Datasets, iterables of mappings.

They are detected by their attributes, so neither library is imported or required.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.readers.tables.columns import ColumnNames, find_columns
from pipeline.datasets.readers.tables.rows import holds_image
from pipeline.datasets.readers.tables.table import RowFault, Table, captions_by_image


def tables_in_memory(source: Any, columns: ColumnNames) -> list[Table]:
    """Return the tables of an object, one per split of a `DatasetDict`."""
    if isinstance(source, Mapping) and source and all(map(_is_dataset, source.values())):
        return [
            _of_dataset(dataset, f"the Dataset's split {split!r}", columns, split)
            if list(source) != ["train"]  # the default name in `datasets`: not split
            else _of_dataset(dataset, "the Dataset", columns, None)
            for split, dataset in source.items()
        ]
    if _is_dataset(source):
        return [_of_dataset(source, "the Dataset", columns, None)]
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return [_of_frame(source, columns)]
    if isinstance(source, Mapping):
        source = captions_by_image(source)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return [Table("the records", "record", _of_mappings(source))]
    raise DatasetError(
        f"found {type(source).__name__}; expected a path, a pandas DataFrame, a datasets.Dataset, "
        "an iterable of mappings, or a mapping of paths to captions"
    )


def _is_dataset(source: Any) -> bool:
    return hasattr(source, "features") and hasattr(source, "cast_column")


def _of_dataset(dataset: Any, name: str, stated: ColumnNames, split: str | None) -> Table:
    dataset = dataset.with_format(None)
    notes: dict[str, Any] = {}
    kinds = dataset.features or {}
    if dataset.column_names is not None:  # unknown for some streams
        names = list(dataset.column_names)
        images = [column for column, kind in kinds.items() if type(kind).__name__ == "Image"]
        others = _others(names, name, stated, images)
        ignored = {c for c in others if not _is_metadata(kinds.get(c))}
        notes = {"columns_ignored": sorted(ignored)} if ignored else {}
        dataset = dataset.select_columns([column for column in names if column not in ignored])
    for column, feature in (dataset.features or {}).items():
        if type(feature).__name__ == "Image":
            # Path and bytes of the file instead of decoded pixels.
            dataset = dataset.cast_column(column, type(feature)(decode=False))
    return Table(name, "row", enumerate(iter(dataset), start=1), split=split, notes=notes)


def _of_frame(frame: Any, stated: ColumnNames) -> Table:
    names = [str(column) for column in frame.columns]
    columns = [frame.iloc[:, index].astype(object) for index in range(len(names))]
    named = zip(names, columns, strict=True)
    images = [name for name, column in named if len(column) and holds_image(column.iloc[0])]
    _others(names, "the DataFrame", stated, images)
    values = (column.where(column.notna(), None) for column in columns)
    rows = enumerate(zip(*values, strict=True), start=1)
    records = ((number, dict(zip(names, row, strict=True))) for number, row in rows)
    return Table("the DataFrame", "row", records)


def _others(
    names: Sequence[str], where: str, stated: ColumnNames, images: Collection[str]
) -> frozenset[str]:
    """Return the metadata columns; raise if the columns cannot be identified."""
    try:
        return find_columns(names, stated, images).others
    except RowFault as error:
        raise DatasetError(f"{where}: {error}") from None


def _is_metadata(feature: Any) -> bool:
    """Return whether a column of a `Dataset` can be metadata and should be decoded."""
    kind = type(feature).__name__
    if kind in ("List", "Sequence", "LargeList"):
        return getattr(feature.feature, "dtype", "") in ("string", "large_string")
    plain = kind == "Value" and "binary" not in feature.dtype
    return feature is None or kind == "ClassLabel" or plain


def _of_mappings(records: Iterable[Any]) -> Iterator[tuple[int, Mapping[str, Any] | RowFault]]:
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            reason = f"a mapping of columns was expected, found {type(record).__name__}"
            yield number, RowFault("malformed record", reason)
        else:
            yield number, record
