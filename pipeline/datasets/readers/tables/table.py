"""A source of records, each with its place, and the reason why one cannot be used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class RowFault(Exception):
    """Why one row of a table cannot be used.

    Attributes
    ----------
    kind : what reasons are counted by, such as "image not found".
    reason : the whole sentence, without the place.
    path : the image's path, if it is known.
    """

    def __init__(self, kind: str, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.kind: str = kind
        self.reason: str = reason
        self.path: str = path


@dataclass(eq=False)
class Table:
    """The records of one file, or of one object in memory.

    Attributes
    ----------
    name : the path of the file, or what the object is; for messages.
    unit : what a record is: "line", "entry", "row", "sample".
    records : number from 1 and values by column of each record, or why it has none. Once only.
    folder : folder below the image root that the paths are relative to; "" is the root.
    split : split of all records; None: of the column of splits, if there is one.
    images_inside : whether the images were stored with the records, and have been unpacked.
    notes : what reading found out, such as a separator other than a comma; JSON values.
    """

    name: str
    unit: str
    records: Iterator[tuple[int, Mapping[str, Any] | RowFault]]
    folder: str = ""
    split: str | None = None
    images_inside: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    def place(self, number: int) -> str:
        """Return the place of a record, such as "captions.csv, line 7"."""
        return f"{self.name}, {self.unit} {number}"
