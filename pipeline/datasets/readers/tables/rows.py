"""Rows of a table: the values of a record as texts."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pipeline.datasets.manifest import Metadata
from pipeline.datasets.metadata import value_of
from pipeline.datasets.readers.tables.caption_cells import texts_of
from pipeline.datasets.readers.tables.columns import ColumnNames, Columns, find_columns
from pipeline.datasets.readers.tables.stored_images import StoredImages
from pipeline.datasets.readers.tables.table import RejectedRows, RowFault, Table
from pipeline.datasets.readers.tables.unpacked import is_file
from pipeline.store.schema import SchemaError

_OF_IMAGES = {"bytes", "path"}


class Row(NamedTuple):
    """One valid record of a table."""

    table: Table
    number: int  # of the record, from 1
    path: str  # as in the table
    captions: list[str]
    split: str | None
    id: str | None
    metadata: Metadata


class RowReader:
    """Converts records to rows, and collects notes on their columns."""

    def __init__(
        self,
        names: ColumnNames,
        rejected: RejectedRows,
        images: StoredImages | None,
        separator: str | None = None,
    ) -> None:
        """Prepare for tables; `images` None: images stored as bytes are invalid."""
        self._names, self._rejected, self._images = names, rejected, images
        # A shell passes a line break as two characters.
        self._separator = separator and separator.replace("\\n", "\n")
        self._columns: dict[tuple[str, ...], Columns] = {}
        self.ignored: set[str] = set()  # columns whose values cannot be metadata
        self.recognised: dict[str, list[str]] = {}  # columns with non-standard names, by meaning
        self.empty_cells = 0  # among several caption columns
        self.split_cells = 0  # texts that hold several captions
        # Whether images are stored in the records; None before the first.
        self.images_inside: bool | None = None

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield the valid rows of a table; invalid ones are collected in `rejected`."""
        for number, record in table.records:
            if isinstance(record, RowFault):
                self._rejected.add(table, number, record)
                continue
            try:
                row = self._row(table, number, record)
            except RowFault as error:
                self._rejected.add(table, number, error)
                continue
            yield row

    def _row(self, table: Table, number: int, record: Mapping[str, Any]) -> Row:
        columns = self._columns_of(record)
        path = self._path(table, number, columns.path, record[columns.path])
        captions = self._captions(columns.captions, record) or [""]
        split = _scalar(record[columns.split], columns.split) if columns.split else None
        image_id = _scalar(record[columns.id], columns.id) if columns.id else None
        metadata = self._metadata(columns, record) if columns.others else {}
        return Row(table, number, path, captions, split or table.split, image_id, metadata)

    def _captions(self, columns: tuple[str, ...], record: Mapping[str, Any]) -> list[str]:
        if len(columns) == 1:
            return self._texts(record[columns[0]], columns[0])
        texts = [text for name in columns for text in self._texts(record[name], name) or [""]]
        captions = [text for text in texts if text.strip()]
        self.empty_cells += len(texts) - len(captions)
        return captions

    def _texts(self, value: Any, name: str) -> list[str]:
        if self._separator and isinstance(value, str):
            texts = [text for text in value.split(self._separator) if text.strip()]
        else:
            texts = texts_of(value, name)
        self.split_cells += isinstance(value, str) and texts != [value]
        return texts

    def _metadata(self, columns: Columns, record: Mapping[str, Any]) -> Metadata:
        """Return the non-empty values of the other columns."""
        values: Metadata = {}
        for name in columns.others - self.ignored:
            try:
                value = value_of(record[name])
            except SchemaError:
                self.ignored.add(name)
                continue
            if value is not None:
                values[name] = value
        return values

    def _columns_of(self, record: Mapping[str, Any]) -> Columns:
        """Identify the columns of a record, of those with a value if all of them are ambiguous."""
        keys = tuple(record)
        try:
            return self._columns.get(keys) or self._find(keys, record)
        except RowFault:
            keys = tuple(key for key, value in record.items() if value is not None)
            if len(keys) == len(record):
                raise
            return self._columns.get(keys) or self._find(keys, record)

    def _find(self, keys: tuple[str, ...], record: Mapping[str, Any]) -> Columns:
        images = [key for key in keys if holds_image(record[key])]
        columns = self._columns[keys] = find_columns(keys, self._names, images)
        for meaning, names in columns.recognised.items():
            recognised = self.recognised.setdefault(meaning, [])
            recognised += [name for name in names if name not in recognised]
        return columns

    def _path(self, table: Table, number: int, column: str, value: Any) -> str:
        """Return the path of an image, which may be stored as bytes."""
        path, data = value, None
        if not isinstance(value, str):
            path, data = _path_and_bytes(value)
        inside = table.images_inside or data is not None
        if self.images_inside is None:
            self.images_inside = inside
        if inside != self.images_inside:
            raise RowFault(
                "image stored otherwise",
                "the image is stored as bytes and those before are files, or the reverse; a "
                "dataset has images of one kind",
            )
        if data is not None:
            if self._images is None:
                raise RowFault("no folder", "the image is stored as bytes; state where to write it")
            return self._images.cell(Path(table.name), number - 1, column, path, data)
        path = path.strip()
        return f"{table.folder}/{path}" if table.folder else path


def holds_image(value: Any) -> bool:
    """Return whether a value is an image of Hugging Face, with bytes and path, or of Pillow."""
    if isinstance(value, Mapping):
        return value.keys() == _OF_IMAGES
    return hasattr(value, "getbands")


def _path_and_bytes(value: Any) -> tuple[str, None] | tuple[str | None, bytes]:
    """Return path and bytes of an image stored as bytes, path, or both (Hugging Face)."""
    data, path = value, None
    if isinstance(value, Mapping) and value.keys() <= _OF_IMAGES:
        data, path = value.get("bytes"), value.get("path")
    if isinstance(path, str) and (data is None or (path.startswith("/") and is_file(Path(path)))):
        return path, None
    if isinstance(value, PurePath):
        return str(value), None
    if isinstance(data, bytes | bytearray | memoryview):
        return path, bytes(data)
    if data is None or (isinstance(data, float) and data != data):
        raise RowFault("no path", "the path is missing")
    kind = type(value).__name__
    if hasattr(value, "getbands"):
        kind += ", an image of Pillow without the bytes of its file; pass the file's path, or the "
        kind += "`datasets.Dataset` itself"
    reason = f"a path, or the bytes of an image file, was expected, found {kind}"
    raise RowFault("unusable path", reason)


def _scalar(value: Any, name: str) -> str | None:
    """Return a split or an id as text; None if missing."""
    if isinstance(value, str):
        return value.strip() or None
    if value is None or (isinstance(value, float) and value != value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise RowFault(
        "unusable value", f"{name}: a text or a whole number was expected, found {value!r:.60}"
    )
