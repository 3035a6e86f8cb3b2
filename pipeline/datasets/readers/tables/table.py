"""Records of a source with their locations, and the reason why one is invalid."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class RowFault(Exception):
    """Reason why a row of a table is invalid.

    Attributes
    ----------
    kind : str. Category for counting, such as "image not found".
    reason : str. Complete message without the location.
    path : str. Path of the image, if known.
    """

    def __init__(self, kind: str, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.kind: str = kind
        self.reason: str = reason
        self.path: str = path


@dataclass(eq=False)
class Table:
    """Records of one file, or of one object in memory.

    Attributes
    ----------
    name : str. Path of the file, or description of the object; for messages.
    unit : str. Noun for a record: "line", "entry", "row", "sample".
    records : iterator. Number from 1 and values by column of each record, or why it is invalid.
    folder : str. Folder below the image root to which paths are relative; "" is the root.
    split : str or None. Split of all records; None: that of the split column, if any.
    images_inside : bool. Images were stored with the records, and have been unpacked.
    notes : dict. Properties found while reading, such as a separator other than a comma (JSON).
    """

    name: str
    unit: str
    records: Iterator[tuple[int, Mapping[str, Any] | RowFault]]
    folder: str = ""
    split: str | None = None
    images_inside: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def place(self, number: int) -> str:
        """Return the location of a record, such as "captions.csv, line 7"."""
        return f"{self.name}, {self.unit} {number}"
